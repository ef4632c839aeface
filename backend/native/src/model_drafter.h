// Drafts by a small model with the same vocabulary, in a context of its own on the main model's threads. Its cells follow
// the tokens of each sequence: what was accepted stays, what was not is taken back at the next draft. A failure costs
// drafts and nothing else. Decode thread only, once made.
#pragma once

#include <memory>
#include <vector>

#include "batch_builder.h"
#include "context_settings.h"
#include "drafter.h"
#include "model_handle.h"
#include "thread_pool.h"

namespace steerage {

/// Throws `model_unsupported` with the difference when tokens do not mean the same in both models.
void requireSameVocabulary(const ModelHandle& draft, const ModelHandle& main);

class ModelDrafter : public Drafter {
 public:
  /// Opens the context. Throws `model_unsupported`, `context_failed`, `out_of_memory`. The pool lives longer.
  ModelDrafter(std::shared_ptr<ModelHandle> draft, const ModelHandle& main, const ContextSettings& settings,
               const ThreadPool& pool, ggml_abort_callback abort, void* abortData);

  void begin(int sequence, int lender, int keepTokens) override;
  int propose(const std::vector<DraftWish>& wishes, int decoding) override;

 private:
  /// A wish whose newest token stands at this place of the batch.
  struct Going {
    const DraftWish* wish;
    int place;
  };

  void keep(int sequence, size_t tokens);
  void reconcile(const std::vector<DraftWish>& wishes);
  std::vector<Going> catchUp(int rows);
  std::vector<Going> guess(const std::vector<Going>& newest);
  void feed(int sequence, int32_t token, bool output);
  bool decode();
  int32_t likeliest(int place) const;
  size_t missing(const DraftWish& wish) const;
  void dropAllBut(const std::vector<DraftWish>& wishes);

  std::shared_ptr<ModelHandle> model_;
  ModelUse use_;
  ContextPtr context_;
  llama_memory_t memory_;
  /// Tokens that mean the same in both models come first.
  int vocabularySize_;
  BatchBuilder batch_;
  /// By sequence: the tokens in this context's cells, those of the batch under way included.
  std::vector<std::vector<int32_t>> held_;
  /// Wishes that can be drafted for, the nearest to its newest token first.
  std::vector<const DraftWish*> ready_;
};

}  // namespace steerage
