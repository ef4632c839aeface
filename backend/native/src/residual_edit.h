// One edit of a job: which rows of which layer it changes, and by how much. The change of a row is computed from the
// row as it came, so the edits of one layer do not see each other. Immutable; decode thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sae_encoder.h"

namespace steerage {

/// Positions [from, to); a negative `to` has no end.
struct PositionRange {
  int from = 0;
  int to = -1;
  bool contains(int position) const { return position >= from && (to < 0 || position < to); }
};

enum class Comparison { Greater, GreaterOrEqual, Less, LessOrEqual };

/// The edit happens only on rows where the activation of one feature compares as said.
struct EditCondition {
  std::shared_ptr<const SaeEncoder> sae;
  std::vector<int32_t> feature;
  Comparison comparison = Comparison::Greater;
  float value = 0.0f;
};

/// Sum over features of (offset + gain * activation) * direction: what set, ablate and scale come down to. Times the
/// scale that the SAE's normalisation took from the row.
struct ActivationTerms {
  std::shared_ptr<const SaeEncoder> sae;
  std::vector<int32_t> features;
  std::vector<float> offsets;
  std::vector<float> gains;
  /// One direction after the other, each as wide as a row.
  std::vector<float> directions;
};

struct ResidualEdit {
  int layer = 0;
  PositionRange range;
  /// When not empty, only positions inside one of these.
  std::vector<PositionRange> ranges;
  /// Rows that carry one of these tokens stay as they are. Ascending.
  std::vector<int32_t> excludedTokens;
  /// Added to the row; empty where `terms` says it all.
  std::vector<float> vector;
  std::optional<ActivationTerms> terms;
  std::optional<EditCondition> condition;

  /// Whether rows at this position can be changed.
  bool reaches(int position) const;
  bool reaches(int position, int32_t token) const;
  /// The same vector for every row it reaches.
  bool isConstant() const { return !terms && !condition; }
};

/// Works out edits on rows; keeps its buffers from row to row.
class EditArithmetic {
 public:
  /// Adds what `edit` changes about `row` to `delta`, both `width` values. False when the row stays as it is.
  bool addChange(const ResidualEdit& edit, const float* row, size_t width, float* delta);

 private:
  bool holds(const EditCondition& condition, const float* row);
  bool addTerms(const ActivationTerms& terms, const float* row, size_t width, float* delta);

  std::vector<float> scratch_;
  std::vector<FeatureValue> found_;
};

}  // namespace steerage
