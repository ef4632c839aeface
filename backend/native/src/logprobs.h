// Natural-log probabilities of the distribution the model gave, before temperature, penalties and truncation.
#pragma once

#include <vector>

#include "step_events.h"

namespace steerage {

/// `alternatives` most likely tokens besides the sampled token's own value. `scratch` is reused between calls.
TokenLogprobs computeLogprobs(const float* logits, int vocabularySize, int32_t token, int alternatives,
                              std::vector<int32_t>& scratch);

}  // namespace steerage
