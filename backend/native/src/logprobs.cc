#include "logprobs.h"

#include <algorithm>
#include <cmath>

namespace steerage {

TokenLogprobs computeLogprobs(const float* logits, int vocabularySize, const std::vector<int32_t>& allowed,
                              int32_t token, int alternatives, std::vector<int32_t>& scratch) {
  const int candidates = allowed.empty() ? vocabularySize : static_cast<int>(allowed.size());
  const auto idAt = [&](int place) { return allowed.empty() ? place : allowed[static_cast<size_t>(place)]; };
  float largest = -INFINITY;
  for (int i = 0; i < candidates; i++) largest = std::max(largest, logits[idAt(i)]);
  double sum = 0.0;
  for (int i = 0; i < candidates; i++) sum += std::exp(static_cast<double>(logits[idAt(i)] - largest));
  const double normaliser = static_cast<double>(largest) + std::log(sum);
  const auto logprobOf = [&](int32_t id) { return static_cast<float>(static_cast<double>(logits[id]) - normaliser); };

  TokenLogprobs out;
  out.logprob = logprobOf(token);
  const int count = std::min(alternatives, candidates);
  if (count == 0) return out;
  scratch.resize(static_cast<size_t>(candidates));
  for (int i = 0; i < candidates; i++) scratch[static_cast<size_t>(i)] = idAt(i);
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
