// The encoder half of a sparse autoencoder in native memory. Immutable; shared by the JavaScript handle and by every
// job that senses with it, so any thread may encode. The caller brings the scratch buffers.
#pragma once

#include <cstdint>
#include <vector>

namespace steerage {

enum class SaeActivation { Relu, JumpRelu, Gated, TopK };
/// What is done to each row before anything else; SAELens calls them layer_norm and constant_norm_rescale.
enum class SaeNormalization { None, LayerNorm, ConstantNorm };

struct SaeWeights {
  int embeddingWidth = 0;
  int featureCount = 0;
  std::vector<float> encoderColumns;
  /// Of the magnitude, in a gated SAE.
  std::vector<float> encoderBias;
  std::vector<float> decoderBias;
  bool applyDecoderBiasToInput = false;
  SaeNormalization normalization = SaeNormalization::None;
  SaeActivation activation = SaeActivation::Relu;
  /// JumpReLU only.
  std::vector<float> threshold;
  /// Gated only: the gate's own bias, and what the column is multiplied by for the magnitude.
  std::vector<float> gateBias;
  std::vector<float> magnitudeScale;
  /// TopK only: features that stay active in a row.
  int activeCount = 0;
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

  /// Appends the active ones among `features` for one row, in the order given. `scratch` is resized as needed. Only
  /// these columns are computed, except by TopK, where every column decides.
  void encodeSubset(const float* row, const std::vector<int32_t>& features, std::vector<float>& scratch,
                    std::vector<FeatureValue>& out) const;
  /// Appends the `topK` largest active features of one row, largest first; ties go to the smaller index.
  void encodeTop(const float* row, int topK, std::vector<float>& scratch, std::vector<FeatureValue>& out) const;
  /// Every activation of one row, F values.
  void encodeAll(const float* row, std::vector<float>& scratch, float* out) const;
  /// What one unit of activation is multiplied by on its way back to the residual stream: 1 without normalisation. An
  /// edit by activations (set, scale) of a normalised SAE takes this factor of the row it was encoded from.
  float outputScale(const float* row) const;

 private:
  const float* prepare(const float* row, std::vector<float>& scratch) const;
  float activationOf(const float* prepared, int feature) const;
  float activated(float product, int feature) const;
  template <typename Take>
  void eachActivation(const float* prepared, Take take) const;
  /// The active features of a prepared row by index; `found` is emptied first.
  void collect(const float* prepared, std::vector<FeatureValue>& found) const;

  SaeWeights weights_;
};

}  // namespace steerage
