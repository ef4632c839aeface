#include "vector_math.h"

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__)
#define STEERAGE_CLONES __attribute__((target_clones("arch=haswell", "default")))
#else
#define STEERAGE_CLONES
#endif

namespace steerage {

namespace {

/// Independent partial sums: with a single one the compiler must keep its order and cannot vectorise.
using Eight = float __attribute__((vector_size(32), aligned(4), may_alias));
constexpr size_t kLanes = 8;

inline const Eight& eightAt(const float* values) { return *reinterpret_cast<const Eight*>(values); }

inline float sumOf(const Eight& sums) {
  return ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
}

}  // namespace

STEERAGE_CLONES float dotProduct(const float* a, const float* b, size_t length) {
  Eight even = {};
  Eight odd = {};
  size_t i = 0;
  for (; i + 2 * kLanes <= length; i += 2 * kLanes) {
    even += eightAt(a + i) * eightAt(b + i);
    odd += eightAt(a + i + kLanes) * eightAt(b + i + kLanes);
  }
  even += odd;
  float sum = sumOf(even);
  for (; i < length; i++) sum += a[i] * b[i];
  return sum;
}

STEERAGE_CLONES void fourDotProducts(const float* a, const float* rows, size_t length, float* out) {
  const float* b0 = rows;
  const float* b1 = b0 + length;
  const float* b2 = b1 + length;
  const float* b3 = b2 + length;
  Eight even[4] = {};
  Eight odd[4] = {};
  size_t i = 0;
  for (; i + 2 * kLanes <= length; i += 2 * kLanes) {
    const Eight first = eightAt(a + i);
    const Eight second = eightAt(a + i + kLanes);
    even[0] += first * eightAt(b0 + i);
    even[1] += first * eightAt(b1 + i);
    even[2] += first * eightAt(b2 + i);
    even[3] += first * eightAt(b3 + i);
    odd[0] += second * eightAt(b0 + i + kLanes);
    odd[1] += second * eightAt(b1 + i + kLanes);
    odd[2] += second * eightAt(b2 + i + kLanes);
    odd[3] += second * eightAt(b3 + i + kLanes);
  }
  for (size_t row = 0; row < 4; row++) {
    even[row] += odd[row];
    out[row] = sumOf(even[row]);
    for (size_t rest = i; rest < length; rest++) out[row] += a[rest] * rows[row * length + rest];
  }
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
