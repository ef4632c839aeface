// Everything that happened in one decode step, as plain data: filled on the decode thread, then handed over whole to
// the JavaScript thread. Mirrors StepEvents of binding.ts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "native_error.h"

namespace steerage {

constexpr int kRecordWords = 5;

struct PromptProgress {
  int jobId;
  int computedTokens;
};

struct TokenLogprobs {
  int jobId = 0;
  float logprob = 0.0f;
  std::vector<int32_t> topTokens;
  std::vector<float> topLogprobs;
};

/// The log-probability of a prompt token, given those before it.
struct PromptLogprobs {
  int position = 0;
  TokenLogprobs chance;
};

struct SensedRows {
  int jobId = 0;
  int planIndex = 0;
  std::vector<int32_t> positions;
  std::vector<int32_t> tokens;
  std::vector<int32_t> counts;
  std::vector<int32_t> indices;
  std::vector<float> values;
};

struct CapturedRows {
  int jobId = 0;
  int planIndex = 0;
  std::vector<int32_t> positions;
  std::vector<float> rows;
};

enum class FinishReason { EndOfGeneration, StopString, Length, Cancelled, Failed };

struct JobFinished {
  int jobId = 0;
  FinishReason reason = FinishReason::Length;
  int stopIndex = -1;
  int64_t textEndBytes = -1;
  int computedPromptTokens = 0;
  int computedCompletionTokens = 0;
  std::vector<int32_t> editedRows;
  /// Only with FinishReason::Failed.
  ErrorCode errorCode = ErrorCode::Internal;
  std::string errorMessage;
};

struct StepEvents {
  std::vector<int32_t> records;
  std::string text;
  std::vector<PromptProgress> prompts;
  std::vector<TokenLogprobs> logprobs;
  std::vector<PromptLogprobs> promptLogprobs;
  std::vector<SensedRows> sensed;
  std::vector<CapturedRows> captured;
  std::vector<JobFinished> finished;

  bool empty() const;
  void addRecord(int jobId, int32_t token, size_t textStart, int position);
};

}  // namespace steerage
