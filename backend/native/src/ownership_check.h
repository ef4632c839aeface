// Proves which batch row each row of the graph is. llama.cpp does not tell the eval callback; but the graph's own input
// tensors hold the token ids and positions of the micro-batch, and they are read here in the ask phase, before anything
// of that micro-batch is computed, and compared with the rows we built. In a unified cache rows come in submitted order.
// Where sequences have streams of cells llama.cpp regroups rows; then the cells that the graph writes to are read too,
// whose numbers say whose stream they lie in. Decode thread only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "batch_builder.h"
#include "ggml.h"

namespace steerage {

/// What is computed at once: the batch rows of its graph rows, and of those graph rows that are outputs.
struct MicroBatch {
  /// Counted from 1 in a decode call; 0 before the first.
  int number = 0;
  std::vector<int> rows;
  std::vector<int> outputs;
};

class OwnershipCheck {
 public:
  /// `streams` is the number of sequences that have cells of their own, 0 in a unified cache.
  explicit OwnershipCheck(int streams) : streams_(streams), nextOf_(static_cast<size_t>(streams)) {}

  /// Before each decode call.
  void begin(const BatchBuilder& batch);
  /// Ask phase: looks at nodes that read token ids or positions, or name cells.
  void observe(const ggml_tensor* node);
  /// After the decode call: every row must have been seen in a proven micro-batch.
  void finish();

  /// Its rows are known once it is proven.
  const MicroBatch& microBatch() const { return current_; }
  /// All inputs of the current micro-batch were compared and fit.
  bool proven() const { return inMicroBatch_ && proven_ && !violated(); }
  bool needsPositions() const { return inMicroBatch_ && !hasPositions_; }
  bool needsCells() const { return inMicroBatch_ && !hasSequences_; }
  bool violated() const { return !violation_.empty(); }
  /// What did not fit, for the log.
  const std::string& violation() const { return violation_; }
  void violate(const std::string& why);
  uint64_t checkedMicroBatches() const { return checked_; }

 private:
  void indexSequences();
  void beginMicroBatch(const ggml_tensor* tokens);
  void takePositions(const ggml_tensor* positions);
  void takeCells(const ggml_tensor* store);
  void proveRows();
  int placeOf(size_t graphRow);
  void endMicroBatch();

  int streams_;
  const BatchBuilder* batch_ = nullptr;
  MicroBatch current_;
  /// What the graph of the current micro-batch holds, row by row; sequences only where there are streams.
  std::vector<int32_t> tokens_;
  std::vector<int32_t> positions_;
  std::vector<int64_t> cells_;
  std::vector<int> sequences_;
  /// Next batch row of every sequence that was not seen yet, and the one behind each; -1 for none.
  std::vector<int> nextOf_;
  std::vector<int> behind_;
  size_t seenRows_ = 0;
  bool inMicroBatch_ = false;
  bool hasPositions_ = false;
  bool hasSequences_ = false;
  bool proven_ = false;
  std::string violation_;
  uint64_t checked_ = 0;
};

}  // namespace steerage
