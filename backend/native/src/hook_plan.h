// What one job wants at which layers and positions: additive edits, sensing, capture. Immutable; asked by the batch
// builder (which rows must be outputs), by the eval hook (which layers to stop at) and by the hook set (what to do).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "sae_encoder.h"

namespace steerage {

/// Positions [from, to); a negative `to` has no end.
struct PositionRange {
  int from = 0;
  int to = -1;
  bool contains(int position) const { return position >= from && (to < 0 || position < to); }
};

enum class ReadPoint { PreSteering, PostSteering };

struct AdditiveEdit {
  int layer = 0;
  PositionRange range;
  std::vector<float> vector;
};

struct SensingPlan {
  std::shared_ptr<const SaeEncoder> sae;
  int layer = 0;
  PositionRange range;
  ReadPoint readPoint = ReadPoint::PreSteering;
  /// True: only `features`; false: all, keeping the `topK` largest.
  bool subset = false;
  std::vector<int32_t> features;
  int topK = 0;
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
  HookPlan(std::vector<AdditiveEdit> edits, std::vector<SensingPlan> sensing, std::vector<CapturePlan> capture);

  bool empty() const { return layers_.empty(); }
  const std::vector<AdditiveEdit>& edits() const { return edits_; }
  const std::vector<SensingPlan>& sensing() const { return sensing_; }
  const std::vector<CapturePlan>& capture() const { return capture_; }
  const std::vector<LayerPlan>& layers() const { return layers_; }
  /// The plans of a layer, or null.
  const LayerPlan* at(int layer) const;
  /// Whether anything is asked for at this layer and position.
  bool touches(const LayerPlan& plan, int position) const;

 private:
  LayerPlan& planOf(int layer);

  std::vector<AdditiveEdit> edits_;
  std::vector<SensingPlan> sensing_;
  std::vector<CapturePlan> capture_;
  std::vector<LayerPlan> layers_;
};

}  // namespace steerage
