#include "prompt_lookup.h"

namespace steerage {

std::vector<int32_t> PromptLookup::continuation(const std::vector<int32_t>& tokens, int most) const {
  const auto size = static_cast<int>(tokens.size());
  const int32_t* begin = tokens.data();
  // The best occurrence ends before this place.
  int bestEnd = 0;
  int bestLength = 0;
  for (int end = size - 1; end >= shortest_ && bestLength < longest_; end--) {
    int length = 0;
    while (length < longest_ && length < end && begin[end - 1 - length] == begin[size - 1 - length]) length++;
    if (length <= bestLength) continue;
    bestLength = length;
    bestEnd = end;
  }
  std::vector<int32_t> draft;
  if (bestLength < shortest_) return draft;
  const int known = size - bestEnd;
  for (int i = 0; i < most; i++) draft.push_back(begin[bestEnd + i % known]);
  return draft;
}

int PromptLookup::propose(const std::vector<DraftWish>& wishes, int) {
  for (const DraftWish& wish : wishes) *wish.draft = continuation(*wish.tokens, wish.most);
  return 0;
}

}  // namespace steerage
