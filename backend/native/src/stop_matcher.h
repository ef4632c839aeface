// Finds stop strings in the bytes of an answer as they come, across token borders. One per job; decode thread only.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace steerage {

struct StopMatch {
  int stopIndex;
  /// Bytes of the whole answer before the stop string.
  int64_t textEndBytes;
};

class StopMatcher {
 public:
  /// The strings are not empty; the list lives longer than the matcher.
  explicit StopMatcher(const std::vector<std::string>& stops);
  /// Takes the bytes of the next token. The match that begins first wins, then the one listed first.
  std::optional<StopMatch> feed(const char* bytes, size_t length);

 private:
  const std::vector<std::string>& stops_;
  size_t longest_ = 0;
  /// The last bytes of the answer, as many as a match may reach back.
  std::string tail_;
  int64_t seenBytes_ = 0;
};

}  // namespace steerage
