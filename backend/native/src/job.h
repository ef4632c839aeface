// One generation job: what was asked for (immutable once submitted), and how far the decode loop has come with it.
// A job belongs to the decode thread from the moment it is submitted.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "account_board.h"
#include "batch_builder.h"
#include "hook_plan.h"

namespace steerage {

class SamplerChain;
class StopMatcher;
struct JobDrafts;

struct SamplerSettings {
  uint32_t seed = 0;
  float temperature = 0.0f;
  int topK = 0;
  float topP = 1.0f;
  float minP = 0.0f;
  float repeatPenalty = 1.0f;
  float frequencyPenalty = 0.0f;
  float presencePenalty = 0.0f;
  int penaltyWindow = 0;
  std::vector<std::pair<int32_t, float>> logitBias;
  /// Only these may be sampled, and log-probabilities are over them alone; empty allows all.
  std::vector<int32_t> allowedTokens;
  std::string grammar;
  bool grammarLazy = false;
  std::string grammarTriggers;

  bool penalises() const { return repeatPenalty != 1.0f || frequencyPenalty != 0.0f || presencePenalty != 0.0f; }
};

struct JobOptions {
  int jobId = 0;
  int sequenceId = 0;
  int copyFromSequenceId = 0;
  int keepTokens = 0;
  std::vector<int32_t> tokens;
  int maxTokens = 1;
  bool ignoreEndOfGeneration = false;
  std::vector<std::string> stopStrings;
  SamplerSettings sampler;
  /// Alternatives per token, -1 for no log-probabilities.
  int logprobs = -1;
  /// Report the prompt's own tokens too, with as many alternatives.
  bool promptLogprobs = false;
  /// Control tokens whose text belongs to the answer, ascending.
  std::vector<int32_t> renderedTokens;
  /// Of the context's board; null for a job that nobody is owed an account of.
  AccountBoard::Record* account = nullptr;
};

class Job {
 public:
  Job(JobOptions options, HookPlan hooks);
  ~Job();

  const JobOptions options;
  const HookPlan hooks;

  /// Made by the decode loop before the first step.
  std::unique_ptr<SamplerChain> sampler;
  std::unique_ptr<StopMatcher> stops;

  /// Place in the order of admission; the highest is the youngest.
  uint64_t admission = 0;
  /// Prompt tokens in the cells, the reused ones included.
  int promptInCells = 0;
  int promptComputed = 0;
  int sampledTokens = 0;
  int32_t lastToken = -1;
  /// The finished event has been written; rows of the step may still point here.
  bool finished = false;
  /// Rows edited in steps that succeeded, one per edit.
  std::vector<int32_t> editedRows;
  /// Null where nothing is drafted.
  std::unique_ptr<JobDrafts> drafts;

  /// One more was computed; the board is told at once.
  void countPromptToken();
  void countSampledToken();

  bool promptDone() const { return promptInCells == static_cast<int>(options.tokens.size()); }
  /// Whether a row of the step holds a token of this job: of drafts, those that were drawn, in their order.
  bool owns(const BatchRow& row) const {
    return !row.draft || (row.position == nextPosition() && row.token == lastToken);
  }
  /// Where the next token of this job goes.
  int nextPosition() const {
    return promptDone() ? static_cast<int>(options.tokens.size()) + sampledTokens - 1 : promptInCells;
  }
};

}  // namespace steerage
