#include "step_events.h"

namespace steerage {

bool StepEvents::empty() const {
  return records.empty() && prompts.empty() && sensed.empty() && captured.empty() && finished.empty();
}

void StepEvents::addRecord(int jobId, int32_t token, size_t textStart, int position) {
  const auto start = static_cast<int32_t>(textStart);
  const auto end = static_cast<int32_t>(text.size());
  records.insert(records.end(), {jobId, token, start, end, position});
}

}  // namespace steerage
