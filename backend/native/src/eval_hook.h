// The eval callback of one context. In the ask phase it feeds the ownership check and says whether to stop at a node;
// at a residual tensor it maps rows to the batch and lets the hook set work, or, when anything does not fit, touches
// nothing. Runs inside llama_decode on the decode thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "ggml-backend.h"
#include "hook_set.h"
#include "ownership_check.h"

namespace steerage {

/// What the probe learns: every residual tensor with its row count, instead of working on it.
class ResidualObserver {
 public:
  virtual ~ResidualObserver() = default;
  virtual void residual(int layer, const ggml_tensor* tensor, const OwnershipCheck& check) = 0;
};

class EvalHook {
 public:
  /// `streams` is the number of sequences that have cells of their own, 0 in a unified cache.
  EvalHook(int layerCount, int embeddingWidth, int streams);
  EvalHook(const EvalHook&) = delete;
  EvalHook& operator=(const EvalHook&) = delete;

  /// For llama_context_params.cb_eval, with the EvalHook as user data.
  static bool callback(ggml_tensor* tensor, bool ask, void* userData);

  /// Around every llama_decode.
  void begin(const BatchBuilder& batch);
  void finish();

  /// While set, every residual tensor goes to the observer and no plan is carried out.
  void observeWith(ResidualObserver* observer) { observer_ = observer; }

  OwnershipCheck& check() { return check_; }
  HookSet& hooks() { return hooks_; }
  uint64_t hookCalls() const { return hookCalls_; }

 private:
  bool ask(const ggml_tensor* tensor);
  void visit(ggml_tensor* tensor);
  /// Layer of a tensor called l_out-<layer>, else -1.
  static int residualLayer(const char* name);
  /// The batch row of every row of the tensor, or null and a violation.
  const std::vector<int>* mapRows(const ggml_tensor* tensor, int layer);

  int layerCount_;
  int width_;
  OwnershipCheck check_;
  HookSet hooks_;
  ResidualObserver* observer_ = nullptr;
  bool active_ = false;
  uint64_t hookCalls_ = 0;
  /// Number of the micro-batch in which each layer was last visited, to notice a second visit.
  std::vector<int> visitedAt_;
};

}  // namespace steerage
