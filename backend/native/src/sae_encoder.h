// The encoder half of a sparse autoencoder in native memory. Immutable; shared by the JavaScript handle and by every
// job that senses with it, so any thread may encode. The caller brings the scratch buffers.
#pragma once

#include <cstdint>
#include <vector>

namespace steerage {

enum class SaeActivation { Relu, JumpRelu };

struct SaeWeights {
  int embeddingWidth = 0;
  int featureCount = 0;
  std::vector<float> encoderColumns;
  std::vector<float> encoderBias;
  std::vector<float> decoderBias;
  bool applyDecoderBiasToInput = false;
  SaeActivation activation = SaeActivation::Relu;
  std::vector<float> threshold;
};

struct FeatureValue {
  int32_t index;
  float value;
};

class SaeEncoder {
 public:
  /// Throws `sae_shape_mismatch` when a length does not fit (d, F).
  explicit SaeEncoder(SaeWeights weights);

  int embeddingWidth() const { return weights_.embeddingWidth; }
  int featureCount() const { return weights_.featureCount; }

  /// Appends the active ones among `features` for one row, in the order given. `scratch` is resized as needed.
  void encodeSubset(const float* row, const std::vector<int32_t>& features, std::vector<float>& scratch,
                    std::vector<FeatureValue>& out) const;
  /// Appends the `topK` largest active features of one row, largest first; ties go to the smaller index.
  void encodeTop(const float* row, int topK, std::vector<float>& scratch, std::vector<FeatureValue>& out) const;
  /// Every activation of one row, F values.
  void encodeAll(const float* row, std::vector<float>& scratch, float* out) const;

 private:
  const float* prepare(const float* row, std::vector<float>& scratch) const;
  float activationOf(const float* prepared, int feature) const;

  SaeWeights weights_;
};

}  // namespace steerage
