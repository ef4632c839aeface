#include "logprobs.h"

#include <algorithm>
#include <cmath>

namespace steerage {

TokenLogprobs computeLogprobs(const float* logits, int vocabularySize, int32_t token, int alternatives,
                              std::vector<int32_t>& scratch) {
  const float largest = *std::max_element(logits, logits + vocabularySize);
  double sum = 0.0;
  for (int i = 0; i < vocabularySize; i++) sum += std::exp(static_cast<double>(logits[i] - largest));
  const double normaliser = static_cast<double>(largest) + std::log(sum);
  const auto logprobOf = [&](int32_t id) { return static_cast<float>(static_cast<double>(logits[id]) - normaliser); };

  TokenLogprobs out;
  out.logprob = logprobOf(token);
  const int count = std::min(alternatives, vocabularySize);
  if (count == 0) return out;
  scratch.resize(static_cast<size_t>(vocabularySize));
  for (int i = 0; i < vocabularySize; i++) scratch[static_cast<size_t>(i)] = i;
  std::partial_sort(scratch.begin(), scratch.begin() + count, scratch.end(), [logits](int32_t a, int32_t b) {
    return logits[a] != logits[b] ? logits[a] > logits[b] : a < b;
  });
  for (int i = 0; i < count; i++) {
    const int32_t id = scratch[static_cast<size_t>(i)];
    out.topTokens.push_back(id);
    out.topLogprobs.push_back(logprobOf(id));
  }
  return out;
}

}  // namespace steerage
