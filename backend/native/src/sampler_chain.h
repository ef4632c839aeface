// llama.cpp's samplers for one job: logit bias, penalties, top-k, top-p, min-p, temperature, then the seeded draw (or
// greedy), with a grammar beside them. Decode thread only.
#pragma once

#include <memory>
#include <vector>

#include "llama.h"

namespace steerage {

class ModelHandle;
struct JobOptions;
struct SamplerSettings;

/// Candidate buffer of one context, shared by all its chains.
using CandidateBuffer = std::vector<llama_token_data>;

class SamplerChain {
 public:
  /// `contextTokens` is what a penalty window of -1 means. Throws `grammar_invalid`.
  SamplerChain(const ModelHandle& model, const JobOptions& job, int contextTokens);

  /// Draws a token and tells every sampler. Throws `non_finite_logits`, `grammar_invalid`.
  llama_token sample(const float* logits, CandidateBuffer& buffer);

 private:
  struct Free {
    void operator()(llama_sampler* sampler) const { llama_sampler_free(sampler); }
  };
  using SamplerPtr = std::unique_ptr<llama_sampler, Free>;

  void add(llama_sampler* sampler) { llama_sampler_chain_add(chain_.get(), sampler); }
  void addLogitBias(const ModelHandle& model, const SamplerSettings& settings);
  void openGrammar(const ModelHandle& model, const SamplerSettings& settings);
  llama_token_data_array fill(const float* logits, CandidateBuffer& buffer) const;
  /// The draw alone, before any sampler is told.
  llama_token draw(const float* logits, CandidateBuffer& buffer) const;
  void accept(llama_token token);
  /// Throws `grammar_invalid` once the grammar has cost more than any that is meant to be followed.
  void checkGrammarCost(double seconds);
  /// Whether the grammar lets this token come next.
  bool grammarAllows(llama_token token) const;

  int vocabularySize_;
  /// Empty allows the whole vocabulary.
  std::vector<int32_t> allowed_;
  SamplerPtr chain_;
  SamplerPtr grammar_;
  /// Of this thread's processor, and the tokens it was spent on.
  double grammarSeconds_ = 0;
  int64_t grammarTokens_ = 0;
};

}  // namespace steerage
