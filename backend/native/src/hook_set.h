// Carries out the plans of every job on the residual rows of one layer of one micro-batch: reads before steering,
// edits, reads after steering. Works in the tensor's own memory where that is host memory, through a copy otherwise. What it
// finds is kept aside until the step has succeeded. Decode thread only.
#pragma once

#include <vector>

#include "batch_builder.h"
#include "ggml.h"
#include "hook_plan.h"
#include "ownership_check.h"
#include "step_events.h"

namespace steerage {

class HookSet {
 public:
  explicit HookSet(int embeddingWidth) : width_(embeddingWidth) {}

  /// Forgets what an earlier decode call found.
  void begin(const BatchBuilder& batch);
  /// Whether any row of the batch wants something at this layer.
  bool wants(int layer) const {
    return layer >= 0 && layer < static_cast<int>(wanted_.size()) && wanted_[static_cast<size_t>(layer)];
  }
  bool wantsAny() const { return wantsAny_; }

  /// Applies the plans to `rowCount` rows of the hooked tensor. Row r is batch row `rowAt[r]`.
  void apply(ggml_tensor* tensor, int layer, const std::vector<int>& rowAt);

  /// The row at this place of the batch holds a token of its job, so its edits count.
  void accept(int place);
  /// The job's rows from this position on were drafts that did not come true: what was read of them is forgotten.
  void reject(int jobId, int fromPosition);
  /// The step succeeded: moves the findings to the events.
  void commit(StepEvents& events);
  /// The step failed: forgets findings and counts.
  void discard();

 private:
  void applyToRow(float* row, int place, const LayerPlan& plan);
  /// Changes the row by the sum of its edits, each computed from the row as it came.
  void edit(float* row, int place, const LayerPlan& plan);
  void sense(const float* row, const BatchRow& owner, int planIndex);
  void capture(const float* row, const BatchRow& owner, int planIndex);

  int width_;
  const BatchBuilder* batch_ = nullptr;
  std::vector<bool> wanted_;
  bool wantsAny_ = false;
  /// By place in the batch: the edits that changed the row, as places in the job's list.
  std::vector<std::vector<int>> edited_;
  std::vector<SensedRows> sensed_;
  std::vector<CapturedRows> captured_;
  std::vector<float> staging_;
  EditArithmetic arithmetic_;
  std::vector<float> delta_;
  std::vector<float> encoderScratch_;
  std::vector<FeatureValue> found_;
};

}  // namespace steerage
