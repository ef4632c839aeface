#include "hook_plan.h"

#include <algorithm>

namespace steerage {

HookPlan::HookPlan(std::vector<ResidualEdit> edits, std::vector<SensingPlan> sensing, std::vector<CapturePlan> capture)
    : edits_(std::move(edits)), sensing_(std::move(sensing)), capture_(std::move(capture)) {
  for (size_t i = 0; i < edits_.size(); i++) planOf(edits_[i].layer).edits.push_back(static_cast<int>(i));
  for (size_t i = 0; i < sensing_.size(); i++) planOf(sensing_[i].layer).sensing.push_back(static_cast<int>(i));
  for (size_t i = 0; i < capture_.size(); i++) planOf(capture_[i].layer).capture.push_back(static_cast<int>(i));
}

bool HookPlan::matters() const {
  const auto needed = [](const SensingPlan& plan) { return !plan.optional; };
  return !edits_.empty() || !capture_.empty() || std::any_of(sensing_.begin(), sensing_.end(), needed);
}

LayerPlan& HookPlan::planOf(int layer) {
  for (LayerPlan& plan : layers_) {
    if (plan.layer == layer) return plan;
  }
  layers_.push_back(LayerPlan{layer, {}, {}, {}});
  return layers_.back();
}

const LayerPlan* HookPlan::at(int layer) const {
  for (const LayerPlan& plan : layers_) {
    if (plan.layer == layer) return &plan;
  }
  return nullptr;
}

bool HookPlan::touches(const LayerPlan& plan, int position) const {
  const auto inside = [position](const auto& list) {
    return [&list, position](int place) { return list[static_cast<size_t>(place)].range.contains(position); };
  };
  const auto edited = [this, position](int place) { return edits_[static_cast<size_t>(place)].reaches(position); };
  return std::any_of(plan.edits.begin(), plan.edits.end(), edited) ||
         std::any_of(plan.sensing.begin(), plan.sensing.end(), inside(sensing_)) ||
         std::any_of(plan.capture.begin(), plan.capture.end(), inside(capture_));
}

}  // namespace steerage
