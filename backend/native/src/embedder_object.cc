#include "embedder_object.h"

#include "addon.h"
#include "async_task.h"
#include "js_values.h"

namespace steerage {

namespace {

EmbedderSettings readSettings(const ObjectReader& options) {
  EmbedderSettings settings;
  settings.contextLength = options.integer("contextLength", 1, 1 << 20);
  settings.threads = options.integer("threads", 1, GGML_MAX_N_THREADS);
  const std::string pooling = options.text("pooling");
  if (pooling == "mean") {
    settings.pooling = LLAMA_POOLING_TYPE_MEAN;
  } else if (pooling == "last") {
    settings.pooling = LLAMA_POOLING_TYPE_LAST;
  } else if (pooling == "cls") {
    settings.pooling = LLAMA_POOLING_TYPE_CLS;
  } else {
    throw NativeError(ErrorCode::InvalidArgument, "options.pooling must be mean, last or cls");
  }
  return settings;
}

std::vector<std::vector<int32_t>> readInputs(const Napi::Value& value, const Embedder& embedder) {
  if (!value.IsArray()) throw NativeError(ErrorCode::InvalidArgument, "inputs must be an array");
  const Napi::Array list = value.As<Napi::Array>();
  std::vector<std::vector<int32_t>> inputs;
  for (uint32_t i = 0; i < list.Length(); i++) {
    const std::string name = "inputs[" + std::to_string(i) + "]";
    const Napi::Value entry = list[i];
    inputs.push_back(integersOf(entry, name));
    const auto length = static_cast<int>(inputs.back().size());
    if (length < 1 || length > embedder.settings().contextLength) {
      throw NativeError(ErrorCode::InvalidArgument,
                        name + " must have 1 to " + std::to_string(embedder.settings().contextLength) + " tokens");
    }
    for (const int32_t token : inputs.back()) embedder.model().requireToken(token, name.c_str());
  }
  return inputs;
}

}  // namespace

Napi::Function EmbedderObject::define(Napi::Env env) {
  return DefineClass(env, "NativeEmbedder",
                     {
                         InstanceMethod<&EmbedderObject::embed>("embed"),
                         InstanceMethod<&EmbedderObject::dispose>("dispose"),
                     });
}

Napi::Value EmbedderObject::create(Napi::Env env, std::shared_ptr<ModelHandle> model, const Napi::Value& value) {
  const EmbedderSettings settings = readSettings(ObjectReader(value, "options"));
  if (settings.contextLength > model->positionLimit()) {
    throw NativeError(ErrorCode::InvalidArgument, "options.contextLength is beyond the model's " +
                                                      std::to_string(model->positionLimit()) + " positions");
  }
  auto slot = std::make_shared<std::shared_ptr<Embedder>>();
  // Counted as in use from now on; handed back once the embedder counts for itself.
  auto use = std::make_shared<std::unique_ptr<ModelUse>>(std::make_unique<ModelUse>(model));
  return AsyncTask::start(
      env, "steerage.createEmbedder",
      [slot, model, settings, use] {
        const std::unique_ptr<ModelUse> held = std::move(*use);
        *slot = std::make_shared<Embedder>(model, settings);
      },
      [slot](Napi::Env done) -> Napi::Value {
        return AddonState::of(done).embedder.New({Napi::External<std::shared_ptr<Embedder>>::New(done, slot.get())});
      });
}

EmbedderObject::EmbedderObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<EmbedderObject>(info) {
  guarded(info.Env(), [&] {
    if (!info[0].IsExternal()) throw NativeError(ErrorCode::InvalidArgument, "use NativeModel.createEmbedder()");
    embedder_ = *info[0].As<Napi::External<std::shared_ptr<Embedder>>>().Data();
  });
}

Napi::Value EmbedderObject::embed(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    if (disposed_) throw NativeError(ErrorCode::Disposed, "the embedder has been disposed");
    auto inputs = std::make_shared<std::vector<std::vector<int32_t>>>(readInputs(call[0], *embedder_));
    auto vectors = std::make_shared<std::vector<std::vector<float>>>();
    return AsyncTask::start(
        call.Env(), "steerage.embed",
        [embedder = embedder_, inputs, vectors] { *vectors = embedder->embed(*inputs); },
        [vectors](Napi::Env env) -> Napi::Value {
          Napi::Array out = Napi::Array::New(env, vectors->size());
          for (uint32_t i = 0; i < vectors->size(); i++) out.Set(i, toFloat32Array(env, (*vectors)[i]));
          return out;
        });
  });
}

Napi::Value EmbedderObject::dispose(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    disposed_ = true;
    return AsyncTask::start(
        call.Env(), "steerage.disposeEmbedder", [embedder = embedder_] { embedder->close(); },
        [](Napi::Env env) -> Napi::Value { return env.Undefined(); });
  });
}

}  // namespace steerage
