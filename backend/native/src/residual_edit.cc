#include "residual_edit.h"

#include <algorithm>

#include "vector_math.h"

namespace steerage {

bool ResidualEdit::reaches(int position) const {
  if (!range.contains(position)) return false;
  if (ranges.empty()) return true;
  return std::any_of(ranges.begin(), ranges.end(),
                     [position](const PositionRange& one) { return one.contains(position); });
}

bool ResidualEdit::reaches(int position, int32_t token) const {
  return reaches(position) && !std::binary_search(excludedTokens.begin(), excludedTokens.end(), token);
}

bool EditArithmetic::addChange(const ResidualEdit& edit, const float* row, size_t width, float* delta) {
  if (edit.condition && !holds(*edit.condition, row)) return false;
  if (!edit.vector.empty()) addInto(delta, edit.vector.data(), width);
  const bool changed = edit.terms && addTerms(*edit.terms, row, width, delta);
  return changed || !edit.vector.empty();
}

bool EditArithmetic::holds(const EditCondition& condition, const float* row) {
  found_.clear();
  condition.sae->encodeSubset(row, condition.feature, scratch_, found_);
  const float activation = found_.empty() ? 0.0f : found_.front().value;
  switch (condition.comparison) {
    case Comparison::Greater:
      return activation > condition.value;
    case Comparison::GreaterOrEqual:
      return activation >= condition.value;
    case Comparison::Less:
      return activation < condition.value;
    case Comparison::LessOrEqual:
      return activation <= condition.value;
  }
  return false;
}

bool EditArithmetic::addTerms(const ActivationTerms& terms, const float* row, size_t width, float* delta) {
  found_.clear();
  terms.sae->encodeSubset(row, terms.features, scratch_, found_);
  // The activation counts in the units in which the encoder saw the row.
  const float scale = terms.sae->outputScale(row);
  bool changed = false;
  // Active features come in the order in which they were asked for; the silent ones between them are left out.
  size_t next = 0;
  for (size_t i = 0; i < terms.features.size(); i++) {
    const bool active = next < found_.size() && found_[next].index == terms.features[i];
    const float activation = active ? found_[next++].value : 0.0f;
    const float factor = scale * (terms.offsets[i] + terms.gains[i] * activation);
    if (factor == 0.0f) continue;
    addScaled(delta, terms.directions.data() + i * width, factor, width);
    changed = true;
  }
  return changed;
}

}  // namespace steerage
