#include "sae_encoder.h"

#include <algorithm>

#include "native_error.h"
#include "vector_math.h"

namespace steerage {

namespace {

void requireLength(const char* name, size_t actual, size_t expected) {
  if (actual == expected) return;
  throw NativeError(ErrorCode::SaeShapeMismatch, std::string(name) + " has " + std::to_string(actual) +
                                                     " values, the shape asks for " + std::to_string(expected));
}

}  // namespace

SaeEncoder::SaeEncoder(SaeWeights weights) : weights_(std::move(weights)) {
  const auto width = static_cast<size_t>(weights_.embeddingWidth);
  const auto features = static_cast<size_t>(weights_.featureCount);
  requireLength("encoderColumns", weights_.encoderColumns.size(), width * features);
  requireLength("encoderBias", weights_.encoderBias.size(), features);
  requireLength("decoderBias", weights_.decoderBias.size(), width);
  requireLength("threshold", weights_.threshold.size(), weights_.activation == SaeActivation::JumpRelu ? features : 0);
}

const float* SaeEncoder::prepare(const float* row, std::vector<float>& scratch) const {
  if (!weights_.applyDecoderBiasToInput) return row;
  scratch.resize(static_cast<size_t>(weights_.embeddingWidth));
  subtract(row, weights_.decoderBias.data(), scratch.data(), scratch.size());
  return scratch.data();
}

float SaeEncoder::activationOf(const float* prepared, int feature) const {
  const auto width = static_cast<size_t>(weights_.embeddingWidth);
  const auto index = static_cast<size_t>(feature);
  const float before =
      dotProduct(prepared, weights_.encoderColumns.data() + index * width, width) + weights_.encoderBias[index];
  if (!(before > 0.0f)) return 0.0f;
  if (weights_.activation == SaeActivation::JumpRelu && !(before > weights_.threshold[index])) return 0.0f;
  return before;
}

void SaeEncoder::encodeSubset(const float* row, const std::vector<int32_t>& features, std::vector<float>& scratch,
                              std::vector<FeatureValue>& out) const {
  const float* prepared = prepare(row, scratch);
  for (const int32_t feature : features) {
    const float value = activationOf(prepared, feature);
    if (value > 0.0f) out.push_back({feature, value});
  }
}

void SaeEncoder::encodeTop(const float* row, int topK, std::vector<float>& scratch,
                           std::vector<FeatureValue>& out) const {
  const float* prepared = prepare(row, scratch);
  const size_t start = out.size();
  for (int feature = 0; feature < weights_.featureCount; feature++) {
    const float value = activationOf(prepared, feature);
    if (value > 0.0f) out.push_back({feature, value});
  }
  const auto first = out.begin() + static_cast<std::ptrdiff_t>(start);
  const auto kept = std::min<size_t>(out.size() - start, static_cast<size_t>(topK));
  const auto middle = first + static_cast<std::ptrdiff_t>(kept);
  std::partial_sort(first, middle, out.end(), [](const FeatureValue& a, const FeatureValue& b) {
    return a.value != b.value ? a.value > b.value : a.index < b.index;
  });
  out.resize(start + kept);
}

void SaeEncoder::encodeAll(const float* row, std::vector<float>& scratch, float* out) const {
  const float* prepared = prepare(row, scratch);
  for (int feature = 0; feature < weights_.featureCount; feature++) out[feature] = activationOf(prepared, feature);
}

}  // namespace steerage
