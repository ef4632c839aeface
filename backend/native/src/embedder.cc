#include "embedder.h"

#include <algorithm>

#include "native_error.h"

namespace steerage {

namespace {

// Inputs that one batch may carry.
constexpr int kSequences = 16;
// Room for several short inputs even when the longest input allowed is short.
constexpr int kLeastBatch = 512;

/// A multiple of the sequences: llama.cpp reserves its graph with the tokens spread evenly over them, and ends the process
/// in the matrix product of the mean when that does not come out even.
int batchTokens(const EmbedderSettings& settings) {
  const int wanted = std::max(settings.contextLength, kLeastBatch);
  return (wanted + kSequences - 1) / kSequences * kSequences;
}

}  // namespace

Embedder::Embedder(std::shared_ptr<ModelHandle> model, const EmbedderSettings& settings)
    : use_(std::make_unique<ModelUse>(model)),
      model_(std::move(model)),
      settings_(settings),
      pool_(std::make_unique<ThreadPool>(settings.threads)),
      batch_(batchTokens(settings)) {
  llama_context_params params = llama_context_default_params();
  params.n_ctx = static_cast<uint32_t>(batchTokens(settings));
  params.n_batch = params.n_ctx;
  // An input must fit one micro-batch: pooling and non-causal attention see it whole.
  params.n_ubatch = params.n_ctx;
  params.n_seq_max = kSequences;
  params.n_threads = settings.threads;
  params.n_threads_batch = settings.threads;
  params.pooling_type = settings.pooling;
  params.embeddings = true;
  params.kv_unified = true;
  params.swa_full = true;
  params.no_perf = true;
  context_ = initContext(*model_, params);
  pool_->attachTo(context_.get());
}

std::vector<std::vector<float>> Embedder::embed(const std::vector<std::vector<int32_t>>& inputs) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!context_) throw NativeError(ErrorCode::Disposed, "the embedder has been disposed");
  std::vector<std::vector<float>> vectors(inputs.size());
  size_t next = 0;
  while (next < inputs.size()) {
    const size_t first = next;
    batch_.clear();
    int sequence = 0;
    while (next < inputs.size() && sequence < kSequences &&
           static_cast<int>(inputs[next].size()) <= batch_.room()) {
      const std::vector<int32_t>& tokens = inputs[next];
      for (size_t i = 0; i < tokens.size(); i++) {
        batch_.add({tokens[i], static_cast<int32_t>(i), sequence, true, false, nullptr});
      }
      next++;
      sequence++;
    }
    if (sequence == 0) throw NativeError(ErrorCode::InvalidArgument, "an input is longer than contextLength");
    decode(first, sequence, vectors);
  }
  return vectors;
}

void Embedder::decode(size_t firstInput, int inputCount, std::vector<std::vector<float>>& vectors) {
  llama_memory_clear(llama_get_memory(context_.get()), false);
  const int status = llama_decode(context_.get(), batch_.batch());
  if (status != 0) {
    throw NativeError(ErrorCode::DecodeFailed, "llama_decode failed with " + std::to_string(status));
  }
  const int width = llama_model_n_embd_out(model_->model());
  for (int sequence = 0; sequence < inputCount; sequence++) {
    const float* pooled = llama_get_embeddings_seq(context_.get(), sequence);
    if (pooled == nullptr) throw NativeError(ErrorCode::DecodeFailed, "the model gave no pooled embedding");
    vectors[firstInput + static_cast<size_t>(sequence)].assign(pooled, pooled + width);
  }
}

void Embedder::close() {
  const std::lock_guard<std::mutex> lock(mutex_);
  context_.reset();
  pool_.reset();
  use_.reset();
  model_.reset();
}

}  // namespace steerage
