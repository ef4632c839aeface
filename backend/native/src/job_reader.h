// Reads a GenerationJob of binding.ts and checks everything that can be known before it runs. JavaScript thread only.
#pragma once

#include <napi.h>

#include <memory>

#include "context_settings.h"
#include "hook_probe.h"
#include "job.h"

namespace steerage {

/// Throws `invalid_argument`, `hook_point_unsupported`, `sae_shape_mismatch`, `disposed`.
std::unique_ptr<Job> readJob(const Napi::Value& value, const ModelHandle& model, const ContextSettings& settings,
                             const HookSupport& support);

}  // namespace steerage
