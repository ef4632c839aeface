// What guesses the next tokens of sequences, for the main model to verify in one step. Decode thread only.
#pragma once

#include <cstdint>
#include <vector>

namespace steerage {

struct DraftWish {
  int sequence;
  /// The prompt and every token sampled so far.
  const std::vector<int32_t>* tokens;
  /// At least 1.
  int most;
  /// Where the guess goes; left empty when there is none.
  std::vector<int32_t>* draft;
};

class Drafter {
 public:
  virtual ~Drafter() = default;
  /// Guesses for all wishes together. True when it cost model time.
  virtual bool propose(const std::vector<DraftWish>& wishes) = 0;
};

}  // namespace steerage
