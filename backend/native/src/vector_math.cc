#include "vector_math.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define STEERAGE_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define STEERAGE_CLONES
#endif

namespace steerage {

STEERAGE_CLONES float dotProduct(const float* a, const float* b, size_t length) {
  // Independent partial sums: without them the compiler must keep the order of a single sum and cannot vectorise.
  constexpr size_t kLanes = 16;
  float partial[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= length; i += kLanes) {
    for (size_t lane = 0; lane < kLanes; lane++) partial[lane] += a[i + lane] * b[i + lane];
  }
  float sum = 0.0f;
  for (size_t lane = 0; lane < kLanes; lane++) sum += partial[lane];
  for (; i < length; i++) sum += a[i] * b[i];
  return sum;
}

STEERAGE_CLONES void addInto(float* target, const float* addend, size_t length) {
  for (size_t i = 0; i < length; i++) target[i] += addend[i];
}

STEERAGE_CLONES void addScaled(float* target, const float* addend, float factor, size_t length) {
  for (size_t i = 0; i < length; i++) target[i] += factor * addend[i];
}

STEERAGE_CLONES void subtract(const float* a, const float* b, float* out, size_t length) {
  for (size_t i = 0; i < length; i++) out[i] = a[i] - b[i];
}

}  // namespace steerage
