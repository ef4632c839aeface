#include "ownership_check.h"

#include <cstring>

#include "ggml-backend.h"

namespace steerage {

namespace {

// Weights keep their GGUF names; a copy made for another device has the name inside its own.
bool namedLike(const ggml_tensor* tensor, const char* name) {
  return tensor != nullptr && std::strstr(tensor->name, name) != nullptr;
}

}  // namespace

void OwnershipCheck::begin(const BatchBuilder& batch) {
  batch_ = &batch;
  current_ = MicroBatch{};
  inMicroBatch_ = false;
  violation_.clear();
}

void OwnershipCheck::violate(const std::string& why) {
  if (violation_.empty()) violation_ = why;
}

void OwnershipCheck::observe(const ggml_tensor* node) {
  if (violated()) return;
  const ggml_tensor* indices = node->src[1];
  if (indices == nullptr || indices->type != GGML_TYPE_I32) return;
  if (node->op == GGML_OP_GET_ROWS) {
    if (namedLike(node->src[0], "token_embd")) {
      beginMicroBatch(indices);
    } else if (needsPositions() && namedLike(node->src[0], "position_embd")) {
      comparePositions(indices);
    }
  } else if (needsPositions()) {
    comparePositions(indices);
  }
}

void OwnershipCheck::beginMicroBatch(const ggml_tensor* tokens) {
  endMicroBatch();
  if (violated()) return;
  const std::vector<BatchRow>& rows = batch_->rows();
  const auto count = static_cast<int>(tokens->ne[0]);
  current_.firstRow += current_.rowCount;
  current_.firstOutput += current_.outputCount;
  current_.rowCount = count;
  current_.outputCount = 0;
  inMicroBatch_ = true;
  tokensProven_ = false;
  positionsProven_ = false;
  if (count < 1 || current_.firstRow + count > static_cast<int>(rows.size())) {
    violate("a micro-batch of " + std::to_string(count) + " rows does not fit behind row " +
            std::to_string(current_.firstRow) + " of " + std::to_string(rows.size()));
    return;
  }
  const int32_t* ids = read(tokens, count);
  for (int r = 0; r < count; r++) {
    const BatchRow& row = rows[static_cast<size_t>(current_.firstRow + r)];
    if (ids[r] != row.token) {
      violate("row " + std::to_string(current_.firstRow + r) + " holds token " + std::to_string(ids[r]) +
              ", the batch has " + std::to_string(row.token));
      return;
    }
    if (row.output) current_.outputCount++;
  }
  tokensProven_ = true;
}

void OwnershipCheck::comparePositions(const ggml_tensor* positions) {
  // Models with several position components per token (M-RoPE) store component by component; the first is the position.
  if (positions->ne[0] < current_.rowCount || positions->ne[0] % current_.rowCount != 0) {
    violate("the graph has " + std::to_string(positions->ne[0]) + " positions for " +
            std::to_string(current_.rowCount) + " rows");
    return;
  }
  const int32_t* values = read(positions, current_.rowCount);
  for (int r = 0; r < current_.rowCount; r++) {
    const BatchRow& row = batch_->rows()[static_cast<size_t>(current_.firstRow + r)];
    if (values[r] != row.position) {
      violate("row " + std::to_string(current_.firstRow + r) + " stands at position " + std::to_string(values[r]) +
              ", the batch has " + std::to_string(row.position));
      return;
    }
  }
  positionsProven_ = true;
}

void OwnershipCheck::endMicroBatch() {
  if (!inMicroBatch_ || violated()) return;
  if (!tokensProven_ || !positionsProven_) {
    violate("the graph reads no positions that could be compared");
    return;
  }
  checked_++;
}

void OwnershipCheck::finish() {
  endMicroBatch();
  const int seen = current_.firstRow + current_.rowCount;
  if (!violated() && seen != static_cast<int>(batch_->rows().size())) {
    violate("only " + std::to_string(seen) + " of " + std::to_string(batch_->rows().size()) + " rows were computed");
  }
  inMicroBatch_ = false;
}

const int32_t* OwnershipCheck::read(const ggml_tensor* tensor, int count) {
  const ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
  if (buffer != nullptr && ggml_backend_buffer_is_host(buffer)) return static_cast<const int32_t*>(tensor->data);
  scratch_.resize(static_cast<size_t>(count));
  ggml_backend_tensor_get(tensor, scratch_.data(), 0, scratch_.size() * sizeof(int32_t));
  return scratch_.data();
}

}  // namespace steerage
