// Natural-log probabilities of the distribution the model gave, before temperature, penalties and truncation.
#pragma once

#include <vector>

#include "step_events.h"

namespace steerage {

/// `alternatives` most likely tokens besides the chosen token's own value. With `allowed` (not empty, ascending) the
/// distribution is the one over those tokens alone. `scratch` is reused between calls.
TokenLogprobs computeLogprobs(const float* logits, int vocabularySize, const std::vector<int32_t>& allowed,
                              int32_t token, int alternatives, std::vector<int32_t>& scratch);

}  // namespace steerage
