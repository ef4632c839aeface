// The inner loops over residual rows, in f32. Compiled for the baseline and for AVX2 machines, chosen at load time, so
// that one binary runs everywhere without -march=native.
#pragma once

#include <cstddef>

namespace steerage {

/// Sum of a[i] * b[i].
float dotProduct(const float* a, const float* b, size_t length);
/// The same with each of four rows that stand one behind the other; `a` is read once for all.
void fourDotProducts(const float* a, const float* rows, size_t length, float* out);
/// target[i] += addend[i].
void addInto(float* target, const float* addend, size_t length);
/// target[i] += factor * addend[i].
void addScaled(float* target, const float* addend, float factor, size_t length);
/// out[i] = a[i] - b[i].
void subtract(const float* a, const float* b, float* out, size_t length);

}  // namespace steerage
