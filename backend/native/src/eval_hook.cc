#include "eval_hook.h"

#include <algorithm>
#include <string>

namespace steerage {

EvalHook::EvalHook(int layerCount, int embeddingWidth, int streams)
    : layerCount_(layerCount),
      width_(embeddingWidth),
      check_(streams),
      hooks_(embeddingWidth),
      visitedAt_(static_cast<size_t>(layerCount), -1) {}

bool EvalHook::callback(ggml_tensor* tensor, bool ask, void* userData) {
  auto* hook = static_cast<EvalHook*>(userData);
  // llama.cpp is C at this border, so nothing may escape; and after the ask phase "false" would silently skip the rest
  // of the graph.
  try {
    if (ask) return hook->ask(tensor);
    hook->visit(tensor);
  } catch (...) {
    hook->check_.violate("the hook ran out of memory");
  }
  return !ask;
}

void EvalHook::begin(const BatchBuilder& batch) {
  active_ = true;
  check_.begin(batch);
  hooks_.begin(batch);
  std::fill(visitedAt_.begin(), visitedAt_.end(), -1);
}

void EvalHook::finish() {
  check_.finish();
  active_ = false;
}

bool EvalHook::ask(const ggml_tensor* tensor) {
  if (!active_) return false;
  if (tensor->op == GGML_OP_GET_ROWS || (tensor->op == GGML_OP_ROPE && check_.needsPositions()) ||
      (tensor->op == GGML_OP_SET_ROWS && check_.needsCells())) {
    check_.observe(tensor);
  }
  if (!hooks_.wantsAny() && observer_ == nullptr) return false;
  const int layer = residualLayer(tensor->name);
  return layer >= 0 && (observer_ != nullptr || hooks_.wants(layer));
}

int EvalHook::residualLayer(const char* name) {
  if (name[0] != 'l' || name[1] != '_' || name[2] != 'o' || name[3] != 'u' || name[4] != 't' || name[5] != '-') {
    return -1;
  }
  int layer = 0;
  const char* digit = name + 6;
  if (*digit == '\0') return -1;
  for (; *digit != '\0'; digit++) {
    if (*digit < '0' || *digit > '9' || layer > 100000) return -1;
    layer = layer * 10 + (*digit - '0');
  }
  return layer;
}

void EvalHook::visit(ggml_tensor* tensor) {
  const int layer = residualLayer(tensor->name);
  if (observer_ != nullptr) {
    observer_->residual(layer, tensor, check_);
    return;
  }
  hookCalls_++;
  const std::vector<int>* rows = mapRows(tensor, layer);
  if (rows != nullptr) hooks_.apply(tensor, layer, *rows);
}

const std::vector<int>* EvalHook::mapRows(const ggml_tensor* tensor, int layer) {
  if (check_.violated()) return nullptr;
  const std::string name(tensor->name);
  if (!check_.proven()) {
    check_.violate(name + " came before the micro-batch was proven");
    return nullptr;
  }
  if (tensor->type != GGML_TYPE_F32 || tensor->ne[0] != width_ || tensor->ne[2] != 1 || tensor->ne[3] != 1 ||
      !ggml_is_contiguous(tensor)) {
    check_.violate(name + " is not a plain matrix of residual rows");
    return nullptr;
  }
  const MicroBatch& micro = check_.microBatch();
  if (layer >= layerCount_ || visitedAt_[static_cast<size_t>(layer)] == micro.number) {
    check_.violate(name + " occurs twice");
    return nullptr;
  }
  visitedAt_[static_cast<size_t>(layer)] = micro.number;

  const auto rows = static_cast<size_t>(tensor->ne[1]);
  if (rows == micro.rows.size()) return &micro.rows;
  if (layer == layerCount_ - 1 && rows == micro.outputs.size()) return &micro.outputs;
  check_.violate(name + " has " + std::to_string(rows) + " rows for " + std::to_string(micro.rows.size()) +
                 " tokens and " + std::to_string(micro.outputs.size()) + " outputs");
  return nullptr;
}

}  // namespace steerage
