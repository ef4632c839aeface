#include "sampler_chain.h"

#include <cfloat>
#include <cmath>
#include <ctime>
#include <exception>
#include <map>
#include <string>

#include "common.h"
#include "job.h"
#include "json.h"
#include "log_sink.h"
#include "model_handle.h"
#include "native_error.h"

namespace steerage {

namespace {

/// The triggers of a lazy grammar and the text it must read first, as ChatTemplates wrote them.
struct GrammarTriggers {
  std::vector<std::string> patterns;
  std::vector<llama_token> tokens;
  std::string prefill;
};

std::string anchored(const std::string& pattern) {
  if (pattern.empty()) return "^$";
  return (pattern.front() == '^' ? "" : "^") + pattern + (pattern.back() == '$' ? "" : "$");
}

GrammarTriggers readTriggers(const ModelHandle& model, const std::string& json) {
  GrammarTriggers triggers;
  if (json.empty()) return triggers;
  for (const common_json& entry : common_json::parse(json)) {
    const std::string type = entry.at("type").get<std::string>();
    const std::string value = entry.at("value").get<std::string>();
    if (type == "prefill") {
      triggers.prefill = value;
    } else if (type == "pattern") {
      triggers.patterns.push_back(value);
    } else if (type == "pattern_full") {
      triggers.patterns.push_back(anchored(value));
    } else {
      const std::vector<int32_t> tokens = model.tokenize(value, false, true);
      if (tokens.size() == 1) {
        triggers.tokens.push_back(tokens.front());
      } else {
        triggers.patterns.push_back(regex_escape(value));
      }
    }
  }
  return triggers;
}

/// What the grammar of one answer may cost this thread, which computes all answers: at the start, and by the token.
/// One with nested repetitions can be read in more ways with every token, until a single token takes minutes.
constexpr double kGrammarSeconds = 1.0;
constexpr double kGrammarSecondsPerToken = 0.15;

/// Processor time of this thread, so that a busy machine makes no grammar dear.
double threadSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// llama.cpp reads this seed as "take a random one"; the port promises that every seed is deterministic.
uint32_t deterministicSeed(uint32_t seed) { return seed == LLAMA_DEFAULT_SEED ? 0x7fffffffu : seed; }

}  // namespace

SamplerChain::SamplerChain(const ModelHandle& model, const JobOptions& job, int contextTokens)
    : vocabularySize_(model.facts().vocabularySize), allowed_(job.sampler.allowedTokens) {
  const SamplerSettings& settings = job.sampler;
  llama_sampler_chain_params params = llama_sampler_chain_default_params();
  params.no_perf = true;
  chain_.reset(llama_sampler_chain_init(params));
  addLogitBias(model, settings);
  if (settings.penalises() && settings.penaltyWindow != 0) {
    const int window = settings.penaltyWindow < 0 ? contextTokens : settings.penaltyWindow;
    add(llama_sampler_init_penalties(vocabularySize_, window, settings.repeatPenalty, settings.frequencyPenalty,
                                     settings.presencePenalty));
    for (const int32_t token : job.tokens) llama_sampler_accept(chain_.get(), token);
  }
  if (settings.temperature > 0.0f) {
    if (settings.topK > 0) add(llama_sampler_init_top_k(settings.topK));
    if (settings.topP < 1.0f) add(llama_sampler_init_top_p(settings.topP, 1));
    if (settings.minP > 0.0f) add(llama_sampler_init_min_p(settings.minP, 1));
    add(llama_sampler_init_temp(settings.temperature));
    add(llama_sampler_init_dist(deterministicSeed(settings.seed)));
  } else {
    add(llama_sampler_init_greedy());
  }
  if (!settings.grammar.empty()) openGrammar(model, settings);
}

void SamplerChain::addLogitBias(const ModelHandle& model, const SamplerSettings& settings) {
  std::map<llama_token, float> biases;
  for (const auto& [token, bias] : settings.logitBias) biases[token] += bias;
  int32_t suppressedCount = 0;
  const llama_token* suppressed = llama_vocab_get_suppress_tokens(model.vocab(), &suppressedCount);
  for (int32_t i = 0; i < suppressedCount; i++) biases[suppressed[i]] = -INFINITY;
  if (biases.empty()) return;
  std::vector<llama_logit_bias> list;
  list.reserve(biases.size());
  for (const auto& [token, bias] : biases) list.push_back({token, bias});
  add(llama_sampler_init_logit_bias(vocabularySize_, static_cast<int32_t>(list.size()), list.data()));
}

void SamplerChain::openGrammar(const ModelHandle& model, const SamplerSettings& settings) {
  const ErrorLines errors;
  try {
    const GrammarTriggers triggers = readTriggers(model, settings.grammarTriggers);
    if (settings.grammarLazy) {
      std::vector<const char*> patterns;
      for (const std::string& pattern : triggers.patterns) patterns.push_back(pattern.c_str());
      grammar_.reset(llama_sampler_init_grammar_lazy_patterns(model.vocab(), settings.grammar.c_str(), "root",
                                                              patterns.data(), patterns.size(), triggers.tokens.data(),
                                                              triggers.tokens.size()));
    } else {
      grammar_.reset(llama_sampler_init_grammar(model.vocab(), settings.grammar.c_str(), "root"));
    }
    if (!grammar_) throw NativeError(ErrorCode::GrammarInvalid, errors.textOr("the grammar does not parse"));
    if (triggers.prefill.empty()) return;
    for (const int32_t token : model.tokenize(triggers.prefill, false, true)) {
      llama_sampler_accept(grammar_.get(), token);
    }
  } catch (const NativeError&) {
    throw;
  } catch (const std::exception& error) {
    throw NativeError(ErrorCode::GrammarInvalid, error.what());
  }
}

llama_token_data_array SamplerChain::fill(const float* logits, CandidateBuffer& buffer) const {
  const size_t count = allowed_.empty() ? static_cast<size_t>(vocabularySize_) : allowed_.size();
  buffer.resize(count);
  llama_token_data* data = buffer.data();
  bool bad = false;
  for (size_t place = 0; place < count; place++) {
    const llama_token token = allowed_.empty() ? static_cast<llama_token>(place) : allowed_[place];
    const float logit = logits[token];
    // False for NaN and for +infinity; -infinity is a legal "never".
    bad |= !(logit <= FLT_MAX);
    data[place] = {token, logit, 0.0f};
  }
  if (bad) throw NativeError(ErrorCode::NonFiniteLogits, "the model gave logits that are not finite");
  return {data, buffer.size(), -1, false};
}

bool SamplerChain::grammarAllows(llama_token token) const {
  llama_token_data single{token, 1.0f, 0.0f};
  llama_token_data_array one{&single, 1, -1, false};
  llama_sampler_apply(grammar_.get(), &one);
  return single.logit != -INFINITY;
}

llama_token SamplerChain::draw(const float* logits, CandidateBuffer& buffer) const {
  llama_token_data_array candidates = fill(logits, buffer);
  llama_sampler_apply(chain_.get(), &candidates);
  // A grammar on the whole vocabulary is slow, so it first judges the one token drawn without it.
  if (grammar_ && !(candidates.selected >= 0 && grammarAllows(candidates.data[candidates.selected].id))) {
    candidates = fill(logits, buffer);
    llama_sampler_apply(grammar_.get(), &candidates);
    llama_sampler_apply(chain_.get(), &candidates);
  }
  if (candidates.selected < 0 || candidates.data[candidates.selected].logit == -INFINITY) {
    throw NativeError(ErrorCode::GrammarInvalid, "no token is allowed to come next");
  }
  return candidates.data[candidates.selected].id;
}

void SamplerChain::accept(llama_token token) {
  if (grammar_) llama_sampler_accept(grammar_.get(), token);
  llama_sampler_accept(chain_.get(), token);
}

void SamplerChain::checkGrammarCost(double seconds) {
  grammarSeconds_ += seconds;
  grammarTokens_++;
  if (grammarSeconds_ <= kGrammarSeconds + kGrammarSecondsPerToken * static_cast<double>(grammarTokens_)) return;
  throw NativeError(ErrorCode::GrammarInvalid, "it can be read in too many ways at once to be followed");
}

llama_token SamplerChain::sample(const float* logits, CandidateBuffer& buffer) {
  try {
    const double before = grammar_ ? threadSeconds() : 0;
    const llama_token token = draw(logits, buffer);
    accept(token);
    if (grammar_) checkGrammarCost(threadSeconds() - before);
    return token;
  } catch (const NativeError&) {
    throw;
  } catch (const std::exception& error) {
    throw NativeError(ErrorCode::GrammarInvalid, error.what());
  }
}

}  // namespace steerage
