#include "sae_encoder.h"

#include <algorithm>
#include <cmath>

#include "native_error.h"
#include "vector_math.h"

namespace steerage {

namespace {

void requireLength(const char* name, size_t actual, size_t expected) {
  if (actual == expected) return;
  throw NativeError(ErrorCode::SaeShapeMismatch, std::string(name) + " has " + std::to_string(actual) +
                                                     " values, the shape asks for " + std::to_string(expected));
}

/// SAELens adds it to the deviation on the way in and not on the way out.
constexpr double kLayerNormEpsilon = 1e-5;

struct Moments {
  double mean;
  /// Unbiased, as torch's std is.
  double deviation;
};

Moments momentsOf(const float* row, size_t width) {
  double sum = 0;
  for (size_t i = 0; i < width; i++) sum += row[i];
  const double mean = sum / static_cast<double>(width);
  double squares = 0;
  for (size_t i = 0; i < width; i++) squares += (row[i] - mean) * (row[i] - mean);
  return {mean, width > 1 ? std::sqrt(squares / static_cast<double>(width - 1)) : 0.0};
}

double lengthOf(const float* row, size_t width) {
  double squares = 0;
  for (size_t i = 0; i < width; i++) squares += static_cast<double>(row[i]) * row[i];
  return std::sqrt(squares);
}

bool larger(const FeatureValue& a, const FeatureValue& b) {
  return a.value != b.value ? a.value > b.value : a.index < b.index;
}

/// Leaves the `count` largest, in any order.
void keepLargest(std::vector<FeatureValue>& found, size_t count) {
  if (found.size() <= count) return;
  std::nth_element(found.begin(), found.begin() + static_cast<std::ptrdiff_t>(count), found.end(), larger);
  found.resize(count);
}

}  // namespace

SaeEncoder::SaeEncoder(SaeWeights weights) : weights_(std::move(weights)) {
  const auto width = static_cast<size_t>(weights_.embeddingWidth);
  const auto features = static_cast<size_t>(weights_.featureCount);
  const SaeActivation activation = weights_.activation;
  requireLength("encoderColumns", weights_.encoderColumns.size(), width * features);
  requireLength("encoderBias", weights_.encoderBias.size(), features);
  requireLength("decoderBias", weights_.decoderBias.size(), width);
  requireLength("threshold", weights_.threshold.size(), activation == SaeActivation::JumpRelu ? features : 0);
  const size_t gates = activation == SaeActivation::Gated ? features : 0;
  requireLength("gateBias", weights_.gateBias.size(), gates);
  requireLength("magnitudeScale", weights_.magnitudeScale.size(), gates);
  if (activation == SaeActivation::TopK && (weights_.activeCount < 1 || weights_.activeCount > weights_.featureCount)) {
    throw NativeError(ErrorCode::SaeShapeMismatch, "activeCount must be 1 to the number of features");
  }
}

float SaeEncoder::outputScale(const float* row) const {
  const auto width = static_cast<size_t>(weights_.embeddingWidth);
  switch (weights_.normalization) {
    case SaeNormalization::LayerNorm:
      return static_cast<float>(momentsOf(row, width).deviation);
    case SaeNormalization::ConstantNorm:
      return static_cast<float>(lengthOf(row, width) / std::sqrt(static_cast<double>(width)));
    case SaeNormalization::None:
      break;
  }
  return 1.0f;
}

const float* SaeEncoder::prepare(const float* row, std::vector<float>& scratch) const {
  const SaeNormalization normalization = weights_.normalization;
  if (normalization == SaeNormalization::None && !weights_.applyDecoderBiasToInput) return row;
  const auto width = static_cast<size_t>(weights_.embeddingWidth);
  scratch.resize(width);
  double shift = 0;
  double factor = 1;
  if (normalization == SaeNormalization::LayerNorm) {
    const Moments moments = momentsOf(row, width);
    shift = moments.mean;
    factor = 1 / (moments.deviation + kLayerNormEpsilon);
  } else if (normalization == SaeNormalization::ConstantNorm) {
    const double length = lengthOf(row, width);
    // A row of zeros has no direction to keep.
    factor = length > 0 ? std::sqrt(static_cast<double>(width)) / length : 0;
  }
  if (normalization == SaeNormalization::None) {
    subtract(row, weights_.decoderBias.data(), scratch.data(), width);
    return scratch.data();
  }
  for (size_t i = 0; i < width; i++) scratch[i] = static_cast<float>((row[i] - shift) * factor);
  if (weights_.applyDecoderBiasToInput) subtract(scratch.data(), weights_.decoderBias.data(), scratch.data(), width);
  return scratch.data();
}

float SaeEncoder::activationOf(const float* prepared, int feature) const {
  const auto width = static_cast<size_t>(weights_.embeddingWidth);
  return activated(dotProduct(prepared, weights_.encoderColumns.data() + static_cast<size_t>(feature) * width, width),
                   feature);
}

/// The activation of a feature whose encoder gave `product` on the row.
float SaeEncoder::activated(float product, int feature) const {
  const auto index = static_cast<size_t>(feature);
  if (weights_.activation == SaeActivation::Gated) {
    if (!(product + weights_.gateBias[index] > 0.0f)) return 0.0f;
    return std::max(0.0f, product * weights_.magnitudeScale[index] + weights_.encoderBias[index]);
  }
  const float before = product + weights_.encoderBias[index];
  if (!(before > 0.0f)) return 0.0f;
  if (weights_.activation == SaeActivation::JumpRelu && !(before > weights_.threshold[index])) return 0.0f;
  return before;
}

/// Calls `take(feature, activation)` for every feature, in order.
template <typename Take>
void SaeEncoder::eachActivation(const float* prepared, Take take) const {
  const auto width = static_cast<size_t>(weights_.embeddingWidth);
  int feature = 0;
  for (; feature + 4 <= weights_.featureCount; feature += 4) {
    float products[4];
    fourDotProducts(prepared, weights_.encoderColumns.data() + static_cast<size_t>(feature) * width, width, products);
    for (int i = 0; i < 4; i++) take(feature + i, activated(products[i], feature + i));
  }
  for (; feature < weights_.featureCount; feature++) take(feature, activationOf(prepared, feature));
}

void SaeEncoder::collect(const float* prepared, std::vector<FeatureValue>& found) const {
  found.clear();
  eachActivation(prepared, [&found](int feature, float value) {
    if (value > 0.0f) found.push_back({feature, value});
  });
  if (weights_.activation != SaeActivation::TopK) return;
  keepLargest(found, static_cast<size_t>(weights_.activeCount));
  std::sort(found.begin(), found.end(), [](const FeatureValue& a, const FeatureValue& b) { return a.index < b.index; });
}

void SaeEncoder::encodeSubset(const float* row, const std::vector<int32_t>& features, std::vector<float>& scratch,
                              std::vector<FeatureValue>& out) const {
  const float* prepared = prepare(row, scratch);
  if (weights_.activation == SaeActivation::TopK) {
    std::vector<FeatureValue> active;
    collect(prepared, active);
    for (const int32_t feature : features) {
      const auto found = std::lower_bound(active.begin(), active.end(), feature,
                                          [](const FeatureValue& entry, int32_t index) { return entry.index < index; });
      if (found != active.end() && found->index == feature) out.push_back(*found);
    }
    return;
  }
  for (const int32_t feature : features) {
    const float value = activationOf(prepared, feature);
    if (value > 0.0f) out.push_back({feature, value});
  }
}

void SaeEncoder::encodeTop(const float* row, int topK, std::vector<float>& scratch,
                           std::vector<FeatureValue>& out) const {
  std::vector<FeatureValue> active;
  collect(prepare(row, scratch), active);
  keepLargest(active, static_cast<size_t>(topK));
  std::sort(active.begin(), active.end(), larger);
  out.insert(out.end(), active.begin(), active.end());
}

void SaeEncoder::encodeAll(const float* row, std::vector<float>& scratch, float* out) const {
  const float* prepared = prepare(row, scratch);
  if (weights_.activation != SaeActivation::TopK) {
    eachActivation(prepared, [out](int feature, float value) { out[feature] = value; });
    return;
  }
  std::vector<FeatureValue> active;
  collect(prepared, active);
  std::fill(out, out + weights_.featureCount, 0.0f);
  for (const FeatureValue& feature : active) out[feature.index] = feature.value;
}

}  // namespace steerage
