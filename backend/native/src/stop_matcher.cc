#include "stop_matcher.h"

#include <algorithm>

namespace steerage {

StopMatcher::StopMatcher(const std::vector<std::string>& stops) : stops_(stops) {
  for (const std::string& stop : stops_) longest_ = std::max(longest_, stop.size());
}

std::optional<StopMatch> StopMatcher::feed(const char* bytes, size_t length) {
  if (longest_ == 0 || length == 0) return std::nullopt;
  tail_.append(bytes, length);
  seenBytes_ += static_cast<int64_t>(length);
  const int64_t tailStart = seenBytes_ - static_cast<int64_t>(tail_.size());
  size_t earliest = std::string::npos;
  int winner = -1;
  for (size_t i = 0; i < stops_.size(); i++) {
    const size_t at = tail_.find(stops_[i]);
    if (at == std::string::npos || (winner >= 0 && at >= earliest)) continue;
    earliest = at;
    winner = static_cast<int>(i);
  }
  if (winner >= 0) return StopMatch{winner, tailStart + static_cast<int64_t>(earliest)};
  if (tail_.size() >= longest_) tail_.erase(0, tail_.size() - (longest_ - 1));
  return std::nullopt;
}

}  // namespace steerage
