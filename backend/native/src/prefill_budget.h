// How many prompt rows a step may carry beside running answers. A step with a long prompt chunk lasts many times as long
// as one that only decodes, and every stream waits for it; so chunks are cut to what the machine does in the time of a
// decode step, as measured. The step that counts is the one to come, in which the waiting prompts decode too: else a
// single stream would let a burst of short prompts in by a few rows a step. Asked and told only of steps in which there are
// answers to wait for. Decode thread only.
#pragma once

namespace steerage {

class PrefillBudget {
 public:
  /// Prompt rows for the next step, at most `room`, when `waitingPrompts` jobs have prompt rows left.
  int rows(int waitingPrompts, int room) const;
  /// What a step carried and how long it took.
  void record(int decodeRows, int promptRows, double seconds);

 private:
  /// Smoothed; 0 is not known yet.
  double decodeStepSeconds_ = 0.0;
  double promptRowSeconds_ = 0.0;
};

}  // namespace steerage
