// Embeddings in a context of their own: pooled rows of result_norm, several inputs a batch. One call at a time; meant
// to be called from workers.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "batch_builder.h"
#include "context_settings.h"
#include "model_handle.h"
#include "thread_pool.h"

namespace steerage {

struct EmbedderSettings {
  int contextLength = 0;
  int threads = 1;
  enum llama_pooling_type pooling = LLAMA_POOLING_TYPE_MEAN;
};

class Embedder {
 public:
  /// Blocking. Throws `context_failed`, `out_of_memory`.
  Embedder(std::shared_ptr<ModelHandle> model, const EmbedderSettings& settings);

  /// One vector per input, in order. Throws `decode_failed`, `disposed`.
  std::vector<std::vector<float>> embed(const std::vector<std::vector<int32_t>>& inputs);
  /// Frees the context once a running call is through and lets go of the model. Idempotent; embed() and model() must
  /// not be called afterwards.
  void close();

  const ModelHandle& model() const { return *model_; }
  const EmbedderSettings& settings() const { return settings_; }

 private:
  void decode(size_t firstInput, int inputCount, std::vector<std::vector<float>>& vectors);

  // Order matters: the context uses the pool and the model.
  std::unique_ptr<ModelUse> use_;
  std::shared_ptr<ModelHandle> model_;
  EmbedderSettings settings_;
  std::unique_ptr<ThreadPool> pool_;
  ContextPtr context_;
  BatchBuilder batch_;
  std::mutex mutex_;
};

}  // namespace steerage
