// Whether drafts make this machine faster, by what it really did: tokens a second of steps with and without them, for
// each width of batch apart. Where rows are all but free, as in a memory-bound step of one answer, they do; in a full
// batch that computes at its limit they do not, and are then left out but for a rare probe. Pure; the clock is the
// caller's. Decode thread only.
#pragma once

#include <array>

namespace steerage {

class DraftGain {
 public:
  /// Whether the step to come of so many running answers should carry drafts. Asked once a step.
  bool favours(int decodeRows);
  /// A step without prompt rows: whether it carried drafts, the tokens that came of it, and how long it took.
  void record(int decodeRows, bool drafted, int tokens, double seconds);

 private:
  /// Sums in which older steps fade.
  struct Rate {
    double tokens = 0.0;
    double seconds = 0.0;
    int steps = 0;
    void add(int stepTokens, double stepSeconds);
    double perSecond() const { return seconds > 0.0 ? tokens / seconds : 0.0; }
  };
  struct Width {
    Rate plain;
    Rate drafted;
    int sinceProbe = 0;
  };
  /// Widths 1, 2 to 3, 4 to 7 and so on behave alike.
  Width& widthOf(int decodeRows);

  std::array<Width, 9> widths_;
};

}  // namespace steerage
