// Finds out, by one tiny decode when a context is made, whether SAE work is safe on this model: are token ids and
// positions found in the graph, does every layer show its residual rows, with the row count we expect?
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "context_settings.h"
#include "eval_hook.h"
#include "model_handle.h"

namespace steerage {

struct HookSupport {
  /// Why SAE work is refused altogether, or nothing.
  std::optional<std::string> refusal;
  /// Which layers can be hooked.
  std::vector<bool> layers;
};

/// Decodes a few tokens and clears the cells again. Throws `context_failed` when the model cannot decode at all.
HookSupport probeHooks(llama_context* context, const ModelHandle& model, EvalHook& hook,
                       const ContextSettings& settings);

}  // namespace steerage
