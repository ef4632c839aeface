#include "hook_probe.h"

#include <algorithm>

#include "log_sink.h"
#include "native_error.h"

namespace steerage {

namespace {

constexpr int kProbeRows = 4;

/// Notes for each layer whether its residual tensor came once, proven, and with a row count that can be mapped.
class ProbeObserver : public ResidualObserver {
 public:
  explicit ProbeObserver(const ModelFacts& facts) : facts_(facts), seen_(static_cast<size_t>(facts.layerCount), 0) {}

  void residual(int layer, const ggml_tensor* tensor, const OwnershipCheck& check) override {
    if (layer >= facts_.layerCount) return;
    const MicroBatch& micro = check.microBatch();
    const bool allRows = tensor->ne[1] == static_cast<int64_t>(micro.rows.size());
    const bool outputRows = layer == facts_.layerCount - 1 && tensor->ne[1] == static_cast<int64_t>(micro.outputs.size());
    const bool plain = tensor->type == GGML_TYPE_F32 && tensor->ne[0] == facts_.embeddingWidth && tensor->ne[2] == 1 &&
                       tensor->ne[3] == 1 && ggml_is_contiguous(tensor);
    int& seen = seen_[static_cast<size_t>(layer)];
    seen = seen == 0 && check.proven() && plain && (allRows || outputRows) ? 1 : 2;
  }

  std::vector<bool> usable() const {
    std::vector<bool> layers;
    for (const int seen : seen_) layers.push_back(seen == 1);
    return layers;
  }
  bool sawAny() const {
    return std::any_of(seen_.begin(), seen_.end(), [](int seen) { return seen != 0; });
  }

 private:
  const ModelFacts& facts_;
  std::vector<int> seen_;
};

/// Rows of two sequences in an order that a graph shows only as it should. In a unified cache the higher id is first,
/// which only a batch kept as submitted has; streams regroup rows that are submitted in turns.
void buildProbe(BatchBuilder& batch, int vocabularySize, const ContextSettings& settings) {
  constexpr int kHalf = kProbeRows / 2;
  for (int i = 0; i < kProbeRows; i++) {
    const bool last = i == kProbeRows - 1;
    int sequence = 0;
    int position = i;
    if (settings.hasStreams()) {
      sequence = i % kHalf;
      position = i / kHalf;
    } else if (settings.sequenceCount > 1) {
      sequence = i < kHalf ? 1 : 0;
      position = i % kHalf;
    }
    batch.add({std::min(i + 1, vocabularySize - 1), position, sequence, last, last, nullptr});
  }
}

}  // namespace

HookSupport probeHooks(llama_context* context, const ModelHandle& model, EvalHook& hook,
                       const ContextSettings& settings) {
  const ModelFacts& facts = model.facts();
  BatchBuilder batch(kProbeRows);
  buildProbe(batch, facts.vocabularySize, settings);
  ProbeObserver observer(facts);
  const ErrorLines errors;
  hook.observeWith(&observer);
  hook.begin(batch);
  const int status = llama_decode(context, batch.batch());
  hook.finish();
  hook.observeWith(nullptr);
  llama_memory_clear(llama_get_memory(context), true);
  if (status != 0) {
    throw NativeError(ErrorCode::ContextFailed, "the first decode failed with " + std::to_string(status) + ": " +
                                                    errors.textOr("no reason given"));
  }

  HookSupport support;
  support.layers = observer.usable();
  if (facts.recurrent) {
    support.refusal = "recurrent";
  } else if (facts.hybrid) {
    support.refusal = "hybrid";
  } else if (hook.check().violated()) {
    support.refusal = hook.check().violation();
  } else if (!observer.sawAny()) {
    support.refusal = "no l_out";
  } else if (std::none_of(support.layers.begin(), support.layers.end(), [](bool usable) { return usable; })) {
    support.refusal = "no l_out with one row per token";
  }
  return support;
}

}  // namespace steerage
