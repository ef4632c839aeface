#include "context_settings.h"

#include "eval_hook.h"
#include "log_sink.h"
#include "native_error.h"

namespace steerage {

namespace {

void applyControlVector(llama_context* context, const std::vector<float>& vector, const ModelFacts& facts) {
  const int status = llama_set_adapter_cvec(context, vector.data(), vector.size(), facts.embeddingWidth, 1,
                                            facts.layerCount - 1);
  if (status != 0) throw NativeError(ErrorCode::ContextFailed, "the control vector cannot be applied");
}

}  // namespace

ContextPtr initContext(const ModelHandle& model, const llama_context_params& params) {
  const ErrorLines errors;
  ContextPtr context(llama_init_from_model(model.model(), params));
  if (!context) {
    const bool memory = errors.contains("alloc") || errors.contains("out of memory");
    throw NativeError(memory ? ErrorCode::OutOfMemory : ErrorCode::ContextFailed,
                      errors.textOr("llama.cpp gave no reason"));
  }
  return context;
}

llama_context_params contextParams(const ContextSettings& settings, ggml_abort_callback abort, void* abortData) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(settings.cellCount);
  // Of a unified cache one micro-batch per decode: rows then stand in submitted order, and a hook sees the whole step.
  params.n_batch = static_cast<uint32_t>(settings.batchTokens);
  params.n_ubatch = static_cast<uint32_t>(settings.batchTokens);
  params.n_seq_max = static_cast<uint32_t>(settings.sequenceCount);
  params.n_threads = settings.threads;
  params.n_threads_batch = settings.threads;
  // Never "auto": whether a request in a batch equals its solo run depends on it.
  params.flash_attn_type = settings.flashAttention ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
  params.type_k = settings.kvType;
  params.type_v = settings.kvType;
  // Of a single sequence it would be the same cache; but llama.cpp looks at all 256 sequences a unified one could have,
  // and at their pairs, before every decode.
  params.kv_unified = settings.sequenceCount > 1 && !settings.kvStreams;
  // Sliding-window layers keep all cells, so that a prefix can be cut or copied anywhere.
  params.swa_full = true;
  params.no_perf = true;
  params.abort_callback = abort;
  params.abort_callback_data = abortData;
  return params;
}

ContextPtr openContext(const ModelHandle& model, const ContextSettings& settings, EvalHook& hook,
                       ggml_abort_callback abort, void* abortData) {
  llama_context_params params = contextParams(settings, abort, abortData);
  params.cb_eval = EvalHook::callback;
  params.cb_eval_user_data = &hook;
  ContextPtr context = initContext(model, params);
  if (!settings.controlVector.empty()) applyControlVector(context.get(), settings.controlVector, model.facts());
  return context;
}

}  // namespace steerage
