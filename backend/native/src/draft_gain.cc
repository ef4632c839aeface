#include "draft_gain.h"

#include <algorithm>

namespace steerage {

namespace {

// Steps of each kind before they are compared.
constexpr int kPlainSteps = 4;
constexpr int kDraftedSteps = 8;
// Every so many steps one is of the other kind, in case that the load has changed.
constexpr int kProbeEvery = 64;
constexpr double kFade = 0.95;

}  // namespace

void DraftGain::Rate::add(int stepTokens, double stepSeconds) {
  tokens = kFade * tokens + stepTokens;
  seconds = kFade * seconds + stepSeconds;
  steps++;
}

DraftGain::Width& DraftGain::widthOf(int decodeRows) {
  size_t place = 0;
  for (int rows = decodeRows; rows > 1; rows /= 2) place++;
  return widths_[std::min(place, widths_.size() - 1)];
}

bool DraftGain::favours(int decodeRows) {
  Width& width = widthOf(decodeRows);
  if (width.plain.steps < kPlainSteps) return false;
  if (width.drafted.steps < kDraftedSteps) return true;
  const bool pays = width.drafted.perSecond() >= width.plain.perSecond();
  if (++width.sinceProbe < kProbeEvery) return pays;
  width.sinceProbe = 0;
  return !pays;
}

void DraftGain::record(int decodeRows, bool drafted, int tokens, double seconds) {
  if (decodeRows < 1) return;
  Width& width = widthOf(decodeRows);
  (drafted ? width.drafted : width.plain).add(tokens, seconds);
}

}  // namespace steerage
