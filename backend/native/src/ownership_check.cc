#include "ownership_check.h"

#include <algorithm>
#include <cstring>

#include "ggml-backend.h"

namespace steerage {

namespace {

// Weights keep their GGUF names; a copy made for another device has the name inside its own.
bool namedLike(const ggml_tensor* tensor, const char* name) {
  return tensor != nullptr && std::strstr(tensor->name, name) != nullptr;
}

/// The first `count` values of an input tensor.
template <typename Value>
void readInto(std::vector<Value>& values, const ggml_tensor* tensor, size_t count) {
  values.resize(count);
  const ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
  if (buffer != nullptr && ggml_backend_buffer_is_host(buffer)) {
    std::memcpy(values.data(), tensor->data, count * sizeof(Value));
  } else {
    ggml_backend_tensor_get(tensor, values.data(), 0, count * sizeof(Value));
  }
}

}  // namespace

void OwnershipCheck::begin(const BatchBuilder& batch) {
  batch_ = &batch;
  current_.number = 0;
  seenRows_ = 0;
  inMicroBatch_ = false;
  violation_.clear();
  if (streams_ > 0) indexSequences();
}

void OwnershipCheck::indexSequences() {
  const std::vector<BatchRow>& rows = batch_->rows();
  std::fill(nextOf_.begin(), nextOf_.end(), -1);
  behind_.resize(rows.size());
  for (size_t place = rows.size(); place-- > 0;) {
    int& next = nextOf_[static_cast<size_t>(rows[place].sequence)];
    behind_[place] = next;
    next = static_cast<int>(place);
  }
}

void OwnershipCheck::violate(const std::string& why) {
  if (violation_.empty()) violation_ = why;
}

void OwnershipCheck::observe(const ggml_tensor* node) {
  if (violated()) return;
  const ggml_tensor* indices = node->src[1];
  if (indices == nullptr) return;
  if (node->op == GGML_OP_SET_ROWS) {
    if (needsCells() && indices->type == GGML_TYPE_I64) takeCells(node);
    return;
  }
  if (indices->type != GGML_TYPE_I32) return;
  if (node->op != GGML_OP_GET_ROWS) {
    if (needsPositions()) takePositions(indices);
  } else if (namedLike(node->src[0], "token_embd")) {
    beginMicroBatch(indices);
  } else if (needsPositions() && namedLike(node->src[0], "position_embd")) {
    takePositions(indices);
  }
}

void OwnershipCheck::beginMicroBatch(const ggml_tensor* tokens) {
  endMicroBatch();
  if (violated()) return;
  current_.number++;
  inMicroBatch_ = true;
  hasPositions_ = false;
  hasSequences_ = streams_ == 0;
  proven_ = false;
  const auto count = static_cast<size_t>(tokens->ne[0]);
  if (count < 1 || seenRows_ + count > batch_->rows().size()) {
    violate("a micro-batch of " + std::to_string(count) + " rows does not fit behind " + std::to_string(seenRows_) +
            " of " + std::to_string(batch_->rows().size()) + " rows");
    return;
  }
  readInto(tokens_, tokens, count);
}

void OwnershipCheck::takePositions(const ggml_tensor* positions) {
  // Models with several position components per token (M-RoPE) store component by component; the first is the position.
  const auto count = static_cast<int64_t>(tokens_.size());
  if (positions->ne[0] < count || positions->ne[0] % count != 0) {
    violate("the graph has " + std::to_string(positions->ne[0]) + " positions for " + std::to_string(count) + " rows");
    return;
  }
  readInto(positions_, positions, tokens_.size());
  hasPositions_ = true;
  proveRows();
}

/// Cells are numbered through all streams, each of which is one sequence's.
void OwnershipCheck::takeCells(const ggml_tensor* store) {
  const ggml_tensor* cells = store->src[1];
  const int64_t perStream = store->ne[1] / streams_;
  if (cells->ne[0] != static_cast<int64_t>(tokens_.size()) || perStream < 1 || store->ne[1] % streams_ != 0) {
    violate("the graph stores " + std::to_string(cells->ne[0]) + " cells of " + std::to_string(store->ne[1]) + " for " +
            std::to_string(tokens_.size()) + " rows");
    return;
  }
  readInto(cells_, cells, tokens_.size());
  sequences_.clear();
  for (const int64_t cell : cells_) {
    if (cell < 0 || cell >= store->ne[1]) {
      violate("the graph stores cell " + std::to_string(cell) + " of " + std::to_string(store->ne[1]));
      return;
    }
    sequences_.push_back(static_cast<int>(cell / perStream));
  }
  hasSequences_ = true;
  proveRows();
}

/// The batch row that must be this one, if the graph is what it should be.
int OwnershipCheck::placeOf(size_t graphRow) {
  if (streams_ == 0) return static_cast<int>(seenRows_ + graphRow);
  // Rows of one sequence keep their order.
  int& next = nextOf_[static_cast<size_t>(sequences_[graphRow])];
  const int place = next;
  if (place >= 0) next = behind_[static_cast<size_t>(place)];
  return place;
}

void OwnershipCheck::proveRows() {
  if (!hasPositions_ || !hasSequences_) return;
  current_.rows.clear();
  current_.outputs.clear();
  for (size_t r = 0; r < tokens_.size(); r++) {
    const int place = placeOf(r);
    if (place < 0) {
      violate("the graph has a row too many of sequence " + std::to_string(sequences_[r]));
      return;
    }
    const BatchRow& row = batch_->rows()[static_cast<size_t>(place)];
    if (tokens_[r] != row.token || positions_[r] != row.position) {
      violate("row " + std::to_string(place) + " holds token " + std::to_string(tokens_[r]) + " at position " +
              std::to_string(positions_[r]) + ", the batch has " + std::to_string(row.token) + " at " +
              std::to_string(row.position));
      return;
    }
    current_.rows.push_back(place);
    if (row.output) current_.outputs.push_back(place);
  }
  proven_ = true;
}

void OwnershipCheck::endMicroBatch() {
  if (!inMicroBatch_ || violated()) return;
  if (!proven_) {
    violate(hasPositions_ ? "the graph stores no cells that could be compared"
                          : "the graph reads no positions that could be compared");
    return;
  }
  seenRows_ += current_.rows.size();
  checked_++;
}

void OwnershipCheck::finish() {
  endMicroBatch();
  if (!violated() && seenRows_ != batch_->rows().size()) {
    violate("only " + std::to_string(seenRows_) + " of " + std::to_string(batch_->rows().size()) +
            " rows were computed");
  }
  inMicroBatch_ = false;
}

}  // namespace steerage
