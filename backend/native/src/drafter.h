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
  /// A job begins on a sequence, with the first `keepTokens` tokens of the lender's job, which may be its own. What came
  /// behind them may be another caller's and is forgotten.
  virtual void begin(int sequence, int lender, int keepTokens) = 0;
  /// Guesses for all wishes together while `decoding` answers run. Gives the tokens that a model of its own computed.
  virtual int propose(const std::vector<DraftWish>& wishes, int decoding) = 0;
};

}  // namespace steerage
