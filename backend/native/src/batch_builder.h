// The rows of one decode call, in the order in which they are submitted, with the job each belongs to. With a unified
// cache llama.cpp keeps that order, with streams it regroups them; OwnershipCheck proves each time which is where.
// Decode thread only.
#pragma once

#include <vector>

#include "llama.h"

namespace steerage {

class Job;

struct BatchRow {
  int32_t token;
  int32_t position;
  int32_t sequence;
  /// Whether the row's logits are kept; in the last layer most graphs carry only these rows.
  bool output;
  /// Whether a token is sampled from this row.
  bool sampled;
  /// Null in the probe.
  Job* job;
  /// A guess: the row counts only when its token is the one that was drawn before it.
  bool draft = false;
};

/// The jobs that own rows, each once, in batch order.
std::vector<Job*> ownersOf(const std::vector<BatchRow>& rows);

/// The rows of the job, or with `inverted` those of all others.
std::vector<BatchRow> rowsOf(const std::vector<BatchRow>& rows, const Job* job, bool inverted);

class BatchBuilder {
 public:
  explicit BatchBuilder(int capacity);
  ~BatchBuilder();
  BatchBuilder(const BatchBuilder&) = delete;
  BatchBuilder& operator=(const BatchBuilder&) = delete;

  void clear();
  void add(const BatchRow& row);
  int room() const { return capacity_ - batch_.n_tokens; }
  const std::vector<BatchRow>& rows() const { return rows_; }
  /// Places of the output rows, ascending.
  const std::vector<int>& outputs() const { return outputs_; }
  const llama_batch& batch() const { return batch_; }

 private:
  int capacity_;
  llama_batch batch_;
  std::vector<BatchRow> rows_;
  std::vector<int> outputs_;
};

}  // namespace steerage
