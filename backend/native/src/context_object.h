// NativeContext of binding.ts: the JavaScript face of a DecodeLoop. Owns the thread-safe function that carries step
// events from the decode thread to `onStep`. JavaScript thread only, except where DecodeLoop calls the sink.
#pragma once

#include <napi.h>

#include <memory>

#include "decode_loop.h"
#include "step_events_writer.h"

namespace steerage {

class ContextObject : public Napi::ObjectWrap<ContextObject> {
 public:
  static Napi::Function define(Napi::Env env);
  /// Promise of a NativeContext.
  static Napi::Value create(Napi::Env env, std::shared_ptr<ModelHandle> model, const Napi::Value& options);
  explicit ContextObject(const Napi::CallbackInfo& info);
  ~ContextObject() override;

 private:
  /// What the thread-safe function needs; lives until it is finalised, so longer than the object.
  struct Delivery {
    explicit Delivery(Napi::Env env) : writer(env) {}
    StepEventsWriter writer;
    ContextObject* owner = nullptr;
    std::unique_ptr<Napi::Promise::Deferred> disposed;
  };
  static void deliver(Napi::Env env, Napi::Function onStep, Delivery* delivery, StepEvents* events);
  using StepFunction = Napi::TypedThreadSafeFunction<Delivery, StepEvents, &ContextObject::deliver>;

  Napi::Value hookRefusal(const Napi::CallbackInfo& call);
  Napi::Value submit(const Napi::CallbackInfo& call);
  Napi::Value cancel(const Napi::CallbackInfo& call);
  Napi::Value clearSequence(const Napi::CallbackInfo& call);
  Napi::Value counters(const Napi::CallbackInfo& call);
  Napi::Value dispose(const Napi::CallbackInfo& call);
  void jobsFinished(Napi::Env env, size_t count);

  std::shared_ptr<DecodeLoop> loop_;
  StepFunction onStep_;
  Delivery* delivery_ = nullptr;
  size_t runningJobs_ = 0;
  bool released_ = false;
  Napi::ObjectReference disposePromise_;
};

}  // namespace steerage
