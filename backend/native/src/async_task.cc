#include "async_task.h"

#include "js_values.h"

namespace steerage {

Napi::Promise AsyncTask::start(Napi::Env env, const char* name, Work work, Finish finish) {
  // The worker deletes itself after OnOK.
  auto* task = new AsyncTask(env, name, std::move(work), std::move(finish));
  Napi::Promise promise = task->deferred_.Promise();
  task->Queue();
  return promise;
}

AsyncTask::AsyncTask(Napi::Env env, const char* name, Work work, Finish finish)
    : Napi::AsyncWorker(env, name),
      deferred_(Napi::Promise::Deferred::New(env)),
      work_(std::move(work)),
      finish_(std::move(finish)) {}

void AsyncTask::Execute() {
  try {
    work_();
  } catch (...) {
    failure_ = currentError();
  }
}

void AsyncTask::OnOK() {
  const Napi::Env env = Env();
  Napi::HandleScope scope(env);
  if (failure_) {
    deferred_.Reject(makeJsError(env, failure_->code(), failure_->what()).Value());
    return;
  }
  try {
    deferred_.Resolve(finish_(env));
  } catch (const Napi::Error& error) {
    deferred_.Reject(error.Value());
  } catch (...) {
    const NativeError error = currentError();
    deferred_.Reject(makeJsError(env, error.code(), error.what()).Value());
  }
}

}  // namespace steerage
