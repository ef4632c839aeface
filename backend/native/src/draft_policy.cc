#include "draft_policy.h"

#include <algorithm>
#include <cmath>

namespace steerage {

namespace {

// Before anything is known a draft is given the benefit of the doubt; four that are all wrong use it up.
constexpr double kFirstShare = 0.6;
constexpr double kLeastShare = 0.3;
constexpr double kGoodShare = 0.6;
constexpr int kLeastDrafts = 4;
constexpr double kNewest = 0.2;
constexpr int kFirstRest = 32;
constexpr int kLongestRest = 512;

}  // namespace

DraftPolicy::DraftPolicy(int most) : most_(most), share_(kFirstShare), length_(most), nextRest_(kFirstRest) {}

int DraftPolicy::next() {
  if (restSteps_ > 0) {
    restSteps_--;
    return 0;
  }
  return std::min(most_, 1 + static_cast<int>(std::lround(length_)));
}

void DraftPolicy::record(int drafted, int accepted) {
  if (drafted < 1) return;
  drafts_++;
  share_ += kNewest * (static_cast<double>(accepted) / drafted - share_);
  length_ += kNewest * (accepted - length_);
  if (share_ >= kGoodShare) nextRest_ = kFirstRest;
  if (drafts_ < kLeastDrafts || share_ >= kLeastShare) return;
  restSteps_ = nextRest_;
  nextRest_ = std::min(kLongestRest, nextRest_ * 2);
  share_ = kFirstShare;
  drafts_ = 0;
}

}  // namespace steerage
