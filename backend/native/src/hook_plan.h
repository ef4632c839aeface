// What one job wants at which layers and positions: edits, sensing, capture. Immutable; asked by the batch
// builder (which rows must be outputs), by the eval hook (which layers to stop at) and by the hook set (what to do).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "residual_edit.h"
#include "sae_encoder.h"

namespace steerage {

enum class ReadPoint { PreSteering, PostSteering };

struct SensingPlan {
  std::shared_ptr<const SaeEncoder> sae;
  int layer = 0;
  PositionRange range;
  ReadPoint readPoint = ReadPoint::PreSteering;
  /// True: only `features`; false: all, keeping the `topK` largest.
  bool subset = false;
  std::vector<int32_t> features;
  int topK = 0;
  /// The job goes on without these rows where their owner is uncertain.
  bool optional = false;
};

struct CapturePlan {
  int layer = 0;
  PositionRange range;
  ReadPoint readPoint = ReadPoint::PreSteering;
};

/// The plans of one layer, as places in the job's lists.
struct LayerPlan {
  int layer = 0;
  std::vector<int> edits;
  std::vector<int> sensing;
  std::vector<int> capture;
};

class HookPlan {
 public:
  HookPlan() = default;
  HookPlan(std::vector<ResidualEdit> edits, std::vector<SensingPlan> sensing, std::vector<CapturePlan> capture);

  bool empty() const { return layers_.empty(); }
  /// Whether the job's answer depends on any of it: optional sensing alone changes nothing.
  bool matters() const;
  const std::vector<ResidualEdit>& edits() const { return edits_; }
  const std::vector<SensingPlan>& sensing() const { return sensing_; }
  const std::vector<CapturePlan>& capture() const { return capture_; }
  const std::vector<LayerPlan>& layers() const { return layers_; }
  /// The plans of a layer, or null.
  const LayerPlan* at(int layer) const;
  /// Whether anything may be asked for at this layer and position; an edit can still leave the row alone by its token.
  bool touches(const LayerPlan& plan, int position) const;

 private:
  LayerPlan& planOf(int layer);

  std::vector<ResidualEdit> edits_;
  std::vector<SensingPlan> sensing_;
  std::vector<CapturePlan> capture_;
  std::vector<LayerPlan> layers_;
};

}  // namespace steerage
