// One blocking call carried by a libuv worker and seen from JavaScript as a promise. `work` runs on the worker and may
// throw; `finish` runs on the JavaScript thread and makes the promise's value.
#pragma once

#include <napi.h>

#include <functional>
#include <optional>

#include "native_error.h"

namespace steerage {

class AsyncTask : public Napi::AsyncWorker {
 public:
  using Work = std::function<void()>;
  using Finish = std::function<Napi::Value(Napi::Env)>;

  /// `name` shows up in async_hooks and diagnostics.
  static Napi::Promise start(Napi::Env env, const char* name, Work work, Finish finish);

 protected:
  void Execute() override;
  void OnOK() override;

 private:
  AsyncTask(Napi::Env env, const char* name, Work work, Finish finish);

  Napi::Promise::Deferred deferred_;
  Work work_;
  Finish finish_;
  std::optional<NativeError> failure_;
};

}  // namespace steerage
