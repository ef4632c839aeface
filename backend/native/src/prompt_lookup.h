// Drafts by looking back: when the newest tokens of a sequence stood in it before, what followed them then is likely to
// follow now. Pure.
#pragma once

#include <cstdint>
#include <vector>

#include "drafter.h"

namespace steerage {

class PromptLookup : public Drafter {
 public:
  /// Matches of `longest` tokens are good enough to stop looking, those shorter than `shortest` say nothing.
  explicit PromptLookup(int shortest = 2, int longest = 4) : shortest_(shortest), longest_(longest) {}

  /// At most `most` tokens that followed the longest earlier occurrence of the newest ones, of equally long ones the
  /// latest. An occurrence that runs into the newest tokens is a repetition, and is drafted to go on. Empty without one.
  std::vector<int32_t> continuation(const std::vector<int32_t>& tokens, int most) const;

  void begin(int, int, int) override {}
  int propose(const std::vector<DraftWish>& wishes, int decoding) override;

 private:
  int shortest_;
  int longest_;
};

}  // namespace steerage
