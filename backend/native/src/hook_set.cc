#include "hook_set.h"

#include <algorithm>

#include "ggml-backend.h"
#include "job.h"
#include "vector_math.h"

namespace steerage {

namespace {

/// The entry of a job's plan in this step, made when missing. Rows of one job stand together, so it is near the end.
template <typename Entry>
Entry& entryOf(std::vector<Entry>& entries, int jobId, int planIndex) {
  for (auto entry = entries.rbegin(); entry != entries.rend(); ++entry) {
    if (entry->jobId == jobId && entry->planIndex == planIndex) return *entry;
  }
  entries.emplace_back();
  entries.back().jobId = jobId;
  entries.back().planIndex = planIndex;
  return entries.back();
}

}  // namespace

void HookSet::begin(const BatchBuilder& batch) {
  batch_ = &batch;
  wantsAny_ = false;
  std::fill(wanted_.begin(), wanted_.end(), false);
  sensed_.clear();
  captured_.clear();
  if (edited_.size() < batch.rows().size()) edited_.resize(batch.rows().size());
  for (std::vector<int>& edits : edited_) edits.clear();
  for (const BatchRow& row : batch.rows()) {
    if (row.job == nullptr) continue;
    for (const LayerPlan& plan : row.job->hooks.layers()) {
      const auto layer = static_cast<size_t>(plan.layer);
      if (layer < wanted_.size() && wanted_[layer]) continue;
      if (!row.job->hooks.touches(plan, row.position)) continue;
      if (layer >= wanted_.size()) wanted_.resize(layer + 1, false);
      wanted_[layer] = true;
      wantsAny_ = true;
    }
  }
}

void HookSet::apply(ggml_tensor* tensor, int layer, const std::vector<int>& rowAt) {
  const ggml_backend_buffer_t buffer = tensor->view_src != nullptr ? tensor->view_src->buffer : tensor->buffer;
  const bool inHostMemory = buffer != nullptr && ggml_backend_buffer_is_host(buffer);
  const auto width = static_cast<size_t>(width_);
  for (size_t r = 0; r < rowAt.size(); r++) {
    const BatchRow& owner = batch_->rows()[static_cast<size_t>(rowAt[r])];
    if (owner.job == nullptr) continue;
    const LayerPlan* plan = owner.job->hooks.at(layer);
    if (plan == nullptr || !owner.job->hooks.touches(*plan, owner.position)) continue;
    if (inHostMemory) {
      applyToRow(static_cast<float*>(tensor->data) + r * width, rowAt[r], *plan);
      continue;
    }
    staging_.resize(width);
    ggml_backend_tensor_get(tensor, staging_.data(), r * width * sizeof(float), width * sizeof(float));
    applyToRow(staging_.data(), rowAt[r], *plan);
    if (!plan->edits.empty()) {
      ggml_backend_tensor_set(tensor, staging_.data(), r * width * sizeof(float), width * sizeof(float));
    }
  }
}

void HookSet::applyToRow(float* row, int place, const LayerPlan& plan) {
  const BatchRow& owner = batch_->rows()[static_cast<size_t>(place)];
  Job& job = *owner.job;
  const auto read = [&](ReadPoint point) {
    for (const int place : plan.sensing) {
      const SensingPlan& wish = job.hooks.sensing()[static_cast<size_t>(place)];
      if (wish.readPoint == point && wish.range.contains(owner.position)) sense(row, owner, place);
    }
    for (const int place : plan.capture) {
      const CapturePlan& wish = job.hooks.capture()[static_cast<size_t>(place)];
      if (wish.readPoint == point && wish.range.contains(owner.position)) capture(row, owner, place);
    }
  };
  read(ReadPoint::PreSteering);
  edit(row, place, plan);
  read(ReadPoint::PostSteering);
}

void HookSet::edit(float* row, int batchPlace, const LayerPlan& plan) {
  const BatchRow& owner = batch_->rows()[static_cast<size_t>(batchPlace)];
  std::vector<int>& edited = edited_[static_cast<size_t>(batchPlace)];
  Job& job = *owner.job;
  const auto width = static_cast<size_t>(width_);
  const auto editAt = [&job](int place) -> const ResidualEdit& { return job.hooks.edits()[static_cast<size_t>(place)]; };
  if (plan.edits.size() == 1 && editAt(plan.edits.front()).isConstant()) {
    const int place = plan.edits.front();
    if (!editAt(place).reaches(owner.position, owner.token)) return;
    addInto(row, editAt(place).vector.data(), width);
    edited.push_back(place);
    return;
  }
  delta_.assign(width, 0.0f);
  bool changed = false;
  for (const int place : plan.edits) {
    const ResidualEdit& edit = editAt(place);
    if (!edit.reaches(owner.position, owner.token)) continue;
    if (!arithmetic_.addChange(edit, row, width, delta_.data())) continue;
    edited.push_back(place);
    changed = true;
  }
  if (changed) addInto(row, delta_.data(), width);
}

void HookSet::sense(const float* row, const BatchRow& owner, int planIndex) {
  const SensingPlan& wish = owner.job->hooks.sensing()[static_cast<size_t>(planIndex)];
  found_.clear();
  if (wish.subset) {
    wish.sae->encodeSubset(row, wish.features, encoderScratch_, found_);
  } else {
    wish.sae->encodeTop(row, wish.topK, encoderScratch_, found_);
  }
  SensedRows& entry = entryOf(sensed_, owner.job->options.jobId, planIndex);
  entry.positions.push_back(owner.position);
  entry.tokens.push_back(owner.token);
  entry.counts.push_back(static_cast<int32_t>(found_.size()));
  for (const FeatureValue& feature : found_) {
    entry.indices.push_back(feature.index);
    entry.values.push_back(feature.value);
  }
}

void HookSet::capture(const float* row, const BatchRow& owner, int planIndex) {
  CapturedRows& entry = entryOf(captured_, owner.job->options.jobId, planIndex);
  entry.positions.push_back(owner.position);
  entry.rows.insert(entry.rows.end(), row, row + width_);
}

void HookSet::accept(int place) {
  if (!wantsAny_) return;
  std::vector<int32_t>& rows = batch_->rows()[static_cast<size_t>(place)].job->editedRows;
  for (const int edit : edited_[static_cast<size_t>(place)]) rows[static_cast<size_t>(edit)]++;
}

void HookSet::reject(int jobId, int fromPosition) {
  // Rows of one job stand in ascending order, so what goes is always the end.
  const auto outdated = [fromPosition](const auto& entry) {
    return !entry.positions.empty() && entry.positions.back() >= fromPosition;
  };
  for (SensedRows& entry : sensed_) {
    if (entry.jobId != jobId) continue;
    while (outdated(entry)) {
      const size_t pairs = entry.indices.size() - static_cast<size_t>(entry.counts.back());
      entry.indices.resize(pairs);
      entry.values.resize(pairs);
      entry.counts.pop_back();
      entry.tokens.pop_back();
      entry.positions.pop_back();
    }
  }
  for (CapturedRows& entry : captured_) {
    if (entry.jobId != jobId) continue;
    while (outdated(entry)) {
      entry.rows.resize(entry.rows.size() - static_cast<size_t>(width_));
      entry.positions.pop_back();
    }
  }
}

void HookSet::commit(StepEvents& events) {
  for (SensedRows& entry : sensed_) {
    if (!entry.positions.empty()) events.sensed.push_back(std::move(entry));
  }
  for (CapturedRows& entry : captured_) {
    if (!entry.positions.empty()) events.captured.push_back(std::move(entry));
  }
  sensed_.clear();
  captured_.clear();
}

void HookSet::discard() {
  sensed_.clear();
  captured_.clear();
  for (std::vector<int>& edits : edited_) edits.clear();
}

}  // namespace steerage
