// Options of a generation context, read from ContextOptions of binding.ts, and how they become llama.cpp's parameters.
#pragma once

#include <memory>
#include <vector>

#include "account_board.h"
#include "llama.h"
#include "model_handle.h"

namespace steerage {

class EvalHook;

struct ContextSettings {
  int sequenceCount = 1;
  int cellCount = 0;
  /// Every sequence has cells of its own, an equal share of `cellCount`, instead of any of one pool.
  bool kvStreams = false;
  int batchTokens = 0;
  int threads = 1;
  bool flashAttention = true;
  ggml_type kvType = GGML_TYPE_F16;
  /// Whether running answers keep their pace beside a prompt.
  bool boundsPrefill = true;
  /// Tokens that may be drafted for a running answer in a step; 0 drafts none.
  int draftTokens = 0;
  /// Whether drafts are left out where steps with them were slower.
  bool draftsWhenFaster = true;
  /// What drafts; null looks the tokens up in the sequence itself.
  std::shared_ptr<ModelHandle> draftModel;
  /// One direction per layer from layer 1 on, added to every row of every sequence; empty for none.
  std::vector<float> controlVector;
  /// Where jobs with an account record tell how far they are; null when nobody reads it.
  std::shared_ptr<AccountBoard> accounts;

  /// Of a single sequence both layouts are the same cache.
  bool hasStreams() const { return kvStreams && sequenceCount > 1; }
};

struct FreeContext {
  void operator()(llama_context* context) const { llama_free(context); }
};
using ContextPtr = std::unique_ptr<llama_context, FreeContext>;

/// Throws `context_failed` or `out_of_memory`. The hook must outlive the context; `abort` may end a decode early.
ContextPtr openContext(const ModelHandle& model, const ContextSettings& settings, EvalHook& hook,
                       ggml_abort_callback abort, void* abortData);

/// The parameters that a context with these settings has, hooks aside.
llama_context_params contextParams(const ContextSettings& settings, ggml_abort_callback abort, void* abortData);

/// llama_init_from_model with the reason in the error.
ContextPtr initContext(const ModelHandle& model, const llama_context_params& params);

}  // namespace steerage
