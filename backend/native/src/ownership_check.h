// Proves which batch row each row of the graph is. llama.cpp does not tell the eval callback; but the graph's own input
// tensors hold the token ids and positions of the micro-batch, and they are read here in the ask phase, before anything
// of that micro-batch is computed, and compared with the rows we built. Decode thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch_builder.h"
#include "ggml.h"

namespace steerage {

/// The rows [firstRow, firstRow + rowCount) of the batch; their outputs are a run of BatchBuilder::outputs().
struct MicroBatch {
  int firstRow = 0;
  int rowCount = 0;
  int firstOutput = 0;
  int outputCount = 0;
};

class OwnershipCheck {
 public:
  /// Before each decode call.
  void begin(const BatchBuilder& batch);
  /// Ask phase: looks at nodes that read token ids or positions.
  void observe(const ggml_tensor* node);
  /// After the decode call: every row must have been seen in a proven micro-batch.
  void finish();

  const MicroBatch& microBatch() const { return current_; }
  /// Batch row of the n-th output of the whole batch.
  int outputRow(int n) const { return batch_->outputs()[static_cast<size_t>(n)]; }
  /// Both inputs of the current micro-batch were compared and fit.
  bool proven() const { return inMicroBatch_ && tokensProven_ && positionsProven_ && !violated(); }
  bool needsPositions() const { return inMicroBatch_ && !positionsProven_; }
  bool violated() const { return !violation_.empty(); }
  /// What did not fit, for the log.
  const std::string& violation() const { return violation_; }
  void violate(const std::string& why);
  uint64_t checkedMicroBatches() const { return checked_; }

 private:
  void beginMicroBatch(const ggml_tensor* tokens);
  void comparePositions(const ggml_tensor* positions);
  void endMicroBatch();
  const int32_t* read(const ggml_tensor* tensor, int count);

  const BatchBuilder* batch_ = nullptr;
  MicroBatch current_;
  bool inMicroBatch_ = false;
  bool tokensProven_ = false;
  bool positionsProven_ = false;
  std::string violation_;
  uint64_t checked_ = 0;
  std::vector<int32_t> scratch_;
};

}  // namespace steerage
