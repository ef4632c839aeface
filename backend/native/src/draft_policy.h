// How much to draft for one sequence: about as many tokens as were lately right, and none for a while where most are
// wrong, as in free text that nothing predicts. Pure; no clock, so the same answers give the same choices.
#pragma once

namespace steerage {

class DraftPolicy {
 public:
  /// `most` tokens at a time, at least 1.
  explicit DraftPolicy(int most);

  /// Tokens to draft in the step to come, 0 while drafting rests. Asked once a step.
  int next();
  /// How many of the drafted tokens were what the sampler drew.
  void record(int drafted, int accepted);
  bool rests() const { return restSteps_ > 0; }

 private:
  int most_;
  /// Share of drafted tokens that were right, and tokens right in one draft; both smoothed.
  double share_;
  double length_;
  int drafts_ = 0;
  int restSteps_ = 0;
  int nextRest_;
};

}  // namespace steerage
