#include "context_object.h"

#include "account_board_object.h"
#include "addon.h"
#include "async_task.h"
#include "job_reader.h"
#include "js_values.h"
#include "live_loops.h"
#include "model_object.h"

namespace steerage {

namespace {

ggml_type readKvType(const ObjectReader& options) {
  const std::string name = options.text("kvType");
  if (name == "f32") return GGML_TYPE_F32;
  if (name == "f16") return GGML_TYPE_F16;
  if (name == "q8_0") return GGML_TYPE_Q8_0;
  if (name == "q4_0") return GGML_TYPE_Q4_0;
  throw NativeError(ErrorCode::InvalidArgument, "options.kvType must be f32, f16, q8_0 or q4_0");
}

/// llama.cpp has no control vector for the first layer, so the list begins with the second.
std::vector<float> readControlVector(const ObjectReader& options, const ModelFacts& facts) {
  const Napi::Value given = options.member("controlVector");
  if (given.IsNull() || given.IsUndefined()) return {};
  std::vector<float> vector = options.floats("controlVector");
  const size_t expected = static_cast<size_t>(facts.layerCount - 1) * static_cast<size_t>(facts.embeddingWidth);
  if (vector.size() == expected) return vector;
  throw NativeError(ErrorCode::InvalidArgument,
                    "options.controlVector must have " + std::to_string(expected) + " values");
}

void readSpeculation(const ObjectReader& speculation, ContextSettings& settings) {
  constexpr int kMostDraftTokens = 64;
  settings.draftTokens = speculation.integer("tokens", 1, kMostDraftTokens);
  const Napi::Value model = speculation.member("model");
  if (!model.IsUndefined() && !model.IsNull()) {
    settings.draftModel = ModelObject::handleOf(model, "options.speculation.model");
  }
  if (!speculation.member("whenFaster").IsUndefined()) settings.draftsWhenFaster = speculation.boolean("whenFaster");
}

ContextSettings readSettings(const ObjectReader& options, const ModelFacts& facts) {
  // The probe decodes this many rows.
  constexpr int kLeastBatch = 4;
  ContextSettings settings;
  settings.sequenceCount = options.integer("sequenceCount", 1, 256);
  settings.cellCount = options.integer("cellCount", 1, INT32_MAX);
  settings.batchTokens = options.integer("batchTokens", std::max(kLeastBatch, settings.sequenceCount), 1 << 20);
  settings.threads = options.integer("threads", 1, GGML_MAX_N_THREADS);
  settings.flashAttention = options.boolean("flashAttention");
  settings.kvType = readKvType(options);
  if (!options.member("kvStreams").IsUndefined()) settings.kvStreams = options.boolean("kvStreams");
  if (settings.hasStreams() && (facts.recurrent || facts.hybrid)) {
    throw NativeError(ErrorCode::InvalidArgument, "options.kvStreams is not for recurrent and hybrid models");
  }
  const Napi::Value bounds = options.member("boundsPrefill");
  if (!bounds.IsUndefined()) settings.boundsPrefill = options.boolean("boundsPrefill");
  settings.controlVector = readControlVector(options, facts);
  const Napi::Value accounts = options.member("accounts");
  if (!accounts.IsUndefined() && !accounts.IsNull()) {
    settings.accounts = AccountBoardObject::boardOf(accounts, "options.accounts");
  }
  const Napi::Value speculation = options.member("speculation");
  if (!speculation.IsUndefined() && !speculation.IsNull()) {
    readSpeculation(options.object("speculation"), settings);
  }
  return settings;
}

/// What travels from the options to the finished object.
struct NewContext {
  std::shared_ptr<DecodeLoop> loop;
  Napi::FunctionReference onStep;
};

}  // namespace

Napi::Function ContextObject::define(Napi::Env env) {
  return DefineClass(env, "NativeContext",
                     {
                         InstanceAccessor<&ContextObject::hookRefusal>("hookRefusal"),
                         InstanceMethod<&ContextObject::submit>("submit"),
                         InstanceMethod<&ContextObject::cancel>("cancel"),
                         InstanceMethod<&ContextObject::clearSequence>("clearSequence"),
                         InstanceMethod<&ContextObject::counters>("counters"),
                         InstanceMethod<&ContextObject::dispose>("dispose"),
                     });
}

Napi::Value ContextObject::create(Napi::Env env, std::shared_ptr<ModelHandle> model, const Napi::Value& value) {
  const ObjectReader options(value, "options");
  const ContextSettings settings = readSettings(options, model->facts());
  auto made = std::make_shared<NewContext>();
  made->onStep = Napi::Persistent(options.function("onStep"));
  // Counted as in use from now on; handed back once the loop counts for itself.
  auto use = std::make_shared<std::unique_ptr<ModelUse>>(std::make_unique<ModelUse>(model));
  return AsyncTask::start(
      env, "steerage.createContext",
      [made, model, settings, use] {
        const std::unique_ptr<ModelUse> held = std::move(*use);
        made->loop = std::make_shared<DecodeLoop>(model, settings);
      },
      [made](Napi::Env done) -> Napi::Value {
        return AddonState::of(done).context.New({Napi::External<NewContext>::New(done, made.get())});
      });
}

ContextObject::ContextObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<ContextObject>(info) {
  guarded(info.Env(), [&] {
    if (!info[0].IsExternal()) throw NativeError(ErrorCode::InvalidArgument, "use NativeModel.createContext()");
    Napi::Env env = info.Env();
    auto* made = info[0].As<Napi::External<NewContext>>().Data();
    loop_ = made->loop;
    delivery_ = new Delivery(env);
    delivery_->owner = this;
    onStep_ = StepFunction::New(env, made->onStep.Value(), Napi::Object(), "steerage.onStep", 0, 1, delivery_,
                                [](Napi::Env done, void*, Delivery* delivery) {
                                  const std::unique_ptr<Delivery> owned(delivery);
                                  if (owned->owner != nullptr) owned->owner->delivery_ = nullptr;
                                  if (owned->disposed) owned->disposed->Resolve(done.Undefined());
                                },
                                static_cast<void*>(nullptr));
    // An idle context does not keep the process alive.
    onStep_.Unref(env);
    LiveLoops::add(loop_);
    loop_->start([onStep = onStep_](std::unique_ptr<StepEvents> events) {
      StepEvents* raw = events.release();
      if (onStep.NonBlockingCall(raw) != napi_ok) delete raw;
    });
    // Made after the thread-safe function, so run before its own clean-up: the thread is gone when that one goes.
    env.AddCleanupHook(
        [](std::weak_ptr<DecodeLoop>* loop) {
          if (const auto alive = loop->lock()) alive->stopSilently();
          delete loop;
        },
        new std::weak_ptr<DecodeLoop>(loop_));
  });
}

ContextObject::~ContextObject() {
  if (loop_) loop_->stopSilently();
  // Gone already when the environment goes down: then the thread-safe function has been finalised first.
  if (delivery_ == nullptr) return;
  delivery_->owner = nullptr;
  if (!released_) onStep_.Release();
}

void ContextObject::deliver(Napi::Env env, Napi::Function onStep, Delivery* delivery, StepEvents* data) {
  const std::unique_ptr<StepEvents> events(data);
  if (env == nullptr) return;
  const Napi::Value out = delivery->writer.write(env, *events);
  if (delivery->owner != nullptr && !events->finished.empty()) {
    delivery->owner->jobsFinished(env, events->finished.size());
  }
  onStep.Call({out});
}

/// While jobs run, the object and the event loop stay alive even if the program holds neither.
void ContextObject::jobsFinished(Napi::Env env, size_t count) {
  const bool wasRunning = runningJobs_ > 0;
  runningJobs_ -= std::min(runningJobs_, count);
  if (!wasRunning || runningJobs_ > 0) return;
  if (!released_) onStep_.Unref(env);
  Unref();
}

Napi::Value ContextObject::hookRefusal(const Napi::CallbackInfo& call) {
  const auto& refusal = loop_->hookSupport().refusal;
  return refusal ? Napi::Value(Napi::String::New(call.Env(), *refusal)) : call.Env().Null();
}

Napi::Value ContextObject::submit(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    if (released_ || !disposePromise_.IsEmpty()) throw NativeError(ErrorCode::Disposed, "the context has been disposed");
    loop_->submit(readJob(call[0], loop_->model(), loop_->settings(), loop_->hookSupport()));
    if (runningJobs_++ == 0) {
      Ref();
      onStep_.Ref(call.Env());
    }
    return call.Env().Undefined();
  });
}

Napi::Value ContextObject::cancel(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    loop_->cancel(integerArgument(call, 0, "jobId"));
    return call.Env().Undefined();
  });
}

Napi::Value ContextObject::clearSequence(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    const int32_t sequence = integerArgument(call, 0, "sequenceId");
    if (sequence < 0 || sequence >= loop_->settings().sequenceCount) {
      throw NativeError(ErrorCode::InvalidArgument, "sequenceId is out of range");
    }
    loop_->clearSequence(sequence);
    return call.Env().Undefined();
  });
}

Napi::Value ContextObject::counters(const Napi::CallbackInfo& call) {
  const Napi::Env env = call.Env();
  const LoopCounters& totals = loop_->counters();
  Napi::Object out = Napi::Object::New(env);
  out.Set("steps", static_cast<double>(totals.steps.load()));
  out.Set("promptTokens", static_cast<double>(totals.promptTokens.load()));
  out.Set("completionTokens", static_cast<double>(totals.completionTokens.load()));
  out.Set("ownershipChecks", static_cast<double>(totals.ownershipChecks.load()));
  out.Set("hookCalls", static_cast<double>(totals.hookCalls.load()));
  out.Set("draftedTokens", static_cast<double>(totals.draftedTokens.load()));
  out.Set("acceptedTokens", static_cast<double>(totals.acceptedTokens.load()));
  out.Set("draftModelTokens", static_cast<double>(totals.draftModelTokens.load()));
  return out;
}

Napi::Value ContextObject::dispose(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    const Napi::Env env = call.Env();
    if (!disposePromise_.IsEmpty()) return disposePromise_.Value();
    // Resolved by the thread-safe function's finaliser: by then every event has reached onStep.
    delivery_->disposed = std::make_unique<Napi::Promise::Deferred>(Napi::Promise::Deferred::New(env));
    const Napi::Promise promise = delivery_->disposed->Promise();
    disposePromise_ = Napi::Persistent(promise.As<Napi::Object>());
    onStep_.Ref(env);
    Ref();
    AsyncTask::start(
        env, "steerage.disposeContext", [loop = loop_] { loop->stop(); },
        [this](Napi::Env done) -> Napi::Value {
          released_ = true;
          onStep_.Release();
          Unref();
          return done.Undefined();
        });
    return promise;
  });
}

}  // namespace steerage
