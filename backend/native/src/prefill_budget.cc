#include "prefill_budget.h"

#include <algorithm>

namespace steerage {

namespace {

// A mixed step may last this many times a step that only decodes. Streams are promised three; the rest is for noise.
constexpr double kStretch = 2.4;
// Prompts go on even where a single row costs more than a decode step.
constexpr int kLeastRows = 4;
// Before anything was measured.
constexpr int kFirstRows = 8;
constexpr double kNewest = 0.2;

void blend(double& value, double sample) { value = value == 0.0 ? sample : value + kNewest * (sample - value); }

}  // namespace

int PrefillBudget::rows(int waitingPrompts, int room) const {
  if (decodeStepSeconds_ == 0.0 || promptRowSeconds_ == 0.0) return std::min(room, kFirstRows);
  // A row costs about the same whether it reads a prompt or decodes.
  const double stepToCome = decodeStepSeconds_ + (waitingPrompts - 1) * promptRowSeconds_;
  const double affordable = (kStretch * stepToCome - decodeStepSeconds_) / promptRowSeconds_;
  return std::min(room, std::max(kLeastRows, static_cast<int>(std::min(affordable, 1e6))));
}

void PrefillBudget::record(int decodeRows, int promptRows, double seconds) {
  if (promptRows == 0) {
    if (decodeRows > 0) blend(decodeStepSeconds_, seconds);
    return;
  }
  // A mixed step that was faster than decoding alone tells nothing about prompts.
  if (seconds > decodeStepSeconds_) blend(promptRowSeconds_, (seconds - decodeStepSeconds_) / promptRows);
}

}  // namespace steerage
