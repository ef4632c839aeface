#include "batch_builder.h"

#include <algorithm>

namespace steerage {

BatchBuilder::BatchBuilder(int capacity) : capacity_(capacity), batch_(llama_batch_init(capacity, 0, 1)) {
  rows_.reserve(static_cast<size_t>(capacity));
  outputs_.reserve(static_cast<size_t>(capacity));
}

BatchBuilder::~BatchBuilder() {
  batch_.n_tokens = capacity_;
  llama_batch_free(batch_);
}

void BatchBuilder::clear() {
  batch_.n_tokens = 0;
  rows_.clear();
  outputs_.clear();
}

void BatchBuilder::add(const BatchRow& row) {
  const int place = batch_.n_tokens++;
  batch_.token[place] = row.token;
  batch_.pos[place] = row.position;
  batch_.n_seq_id[place] = 1;
  batch_.seq_id[place][0] = row.sequence;
  batch_.logits[place] = row.output ? 1 : 0;
  rows_.push_back(row);
  if (row.output) outputs_.push_back(place);
}

std::vector<Job*> ownersOf(const std::vector<BatchRow>& rows) {
  std::vector<Job*> owners;
  for (const BatchRow& row : rows) {
    if (std::find(owners.begin(), owners.end(), row.job) == owners.end()) owners.push_back(row.job);
  }
  return owners;
}

std::vector<BatchRow> rowsOf(const std::vector<BatchRow>& rows, const Job* job, bool inverted) {
  std::vector<BatchRow> chosen;
  for (const BatchRow& row : rows) {
    if ((row.job == job) != inverted) chosen.push_back(row);
  }
  return chosen;
}

}  // namespace steerage
