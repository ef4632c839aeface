// Turns the plain StepEvents of a step into the JavaScript object of binding.ts. JavaScript thread only. Small models
// make thousands of steps a second, so what is empty is one shared array, and a JavaScript function assembles the object
// in one call instead of seven properties being set by name across N-API.
#pragma once

#include <napi.h>

#include "step_events.h"

namespace steerage {

class StepEventsWriter {
 public:
  explicit StepEventsWriter(Napi::Env env);
  Napi::Value write(Napi::Env env, const StepEvents& events);

 private:
  template <typename Item, typename Convert>
  Napi::Value list(Napi::Env env, const std::vector<Item>& items, Convert convert);

  Napi::FunctionReference assemble_;
  Napi::ObjectReference emptyList_;
};

}  // namespace steerage
