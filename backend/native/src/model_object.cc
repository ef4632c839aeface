#include "model_object.h"

#include "addon.h"
#include "async_task.h"
#include "chat_object.h"
#include "context_object.h"
#include "embedder_object.h"
#include "grammar.h"
#include "js_values.h"
#include "runtime.h"

namespace steerage {

namespace {

ModelSettings readSettings(const Napi::Value& value) {
  const ObjectReader options(value, "options");
  ModelSettings settings;
  settings.path = options.text("path");
  settings.gpuLayers = options.integer("gpuLayers", -1, INT32_MAX);
  settings.useMmap = options.boolean("useMmap");
  const Napi::Array split = options.array("tensorSplit");
  for (uint32_t i = 0; i < split.Length(); i++) {
    const Napi::Value share = split[i];
    if (!share.IsNumber()) throw NativeError(ErrorCode::InvalidArgument, "options.tensorSplit must hold numbers");
    settings.tensorSplit.push_back(share.As<Napi::Number>().FloatValue());
  }
  return settings;
}

Napi::Value tokenOrNull(Napi::Env env, llama_token token) {
  return token == LLAMA_TOKEN_NULL ? env.Null() : Napi::Number::New(env, token);
}

Napi::Object describe(Napi::Env env, const ModelFacts& facts) {
  Napi::Object info = Napi::Object::New(env);
  info.Set("architecture", facts.architecture);
  info.Set("layerCount", facts.layerCount);
  info.Set("embeddingWidth", facts.embeddingWidth);
  info.Set("vocabularySize", facts.vocabularySize);
  info.Set("trainingContextLength", facts.trainingContextLength);
  info.Set("slidingWindow", facts.slidingWindow);
  info.Set("recurrent", facts.recurrent);
  info.Set("hybrid", facts.hybrid);
  info.Set("parameterCount", static_cast<double>(facts.parameterCount));
  info.Set("sizeBytes", static_cast<double>(facts.sizeBytes));
  info.Set("chatTemplate", facts.chatTemplate ? Napi::Value(Napi::String::New(env, *facts.chatTemplate)) : env.Null());
  info.Set("bosToken", tokenOrNull(env, facts.bosToken));
  info.Set("eosToken", tokenOrNull(env, facts.eosToken));
  info.Set("addsBos", facts.addsBos);
  Napi::Object metadata = Napi::Object::New(env);
  for (const auto& [key, value] : facts.metadata) metadata.Set(key, value);
  metadata.Freeze();
  info.Set("metadata", metadata);
  info.Freeze();
  return info;
}

}  // namespace

Napi::Function ModelObject::define(Napi::Env env) {
  return DefineClass(env, "NativeModel",
                     {
                         InstanceAccessor<&ModelObject::info>("info"),
                         InstanceMethod<&ModelObject::tokenize>("tokenize"),
                         InstanceMethod<&ModelObject::tokenBytes>("tokenBytes"),
                         InstanceMethod<&ModelObject::isEndOfGeneration>("isEndOfGeneration"),
                         InstanceMethod<&ModelObject::isControl>("isControl"),
                         InstanceMethod<&ModelObject::openChat>("openChat"),
                         InstanceMethod<&ModelObject::grammarFromSchema>("grammarFromSchema"),
                         InstanceMethod<&ModelObject::checkGrammar>("checkGrammar"),
                         InstanceMethod<&ModelObject::createContext>("createContext"),
                         InstanceMethod<&ModelObject::createEmbedder>("createEmbedder"),
                         InstanceMethod<&ModelObject::dispose>("dispose"),
                     });
}

Napi::Value ModelObject::load(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    Runtime::requireInitialized();
    const ModelSettings settings = readSettings(info[0]);
    auto slot = std::make_shared<std::shared_ptr<ModelHandle>>();
    return AsyncTask::start(
        info.Env(), "steerage.loadModel", [slot, settings] { *slot = ModelHandle::load(settings); },
        [slot](Napi::Env env) -> Napi::Value {
          return AddonState::of(env).model.New({Napi::External<std::shared_ptr<ModelHandle>>::New(env, slot.get())});
        });
  });
}

ModelObject::ModelObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<ModelObject>(info) {
  guarded(info.Env(), [&] {
    if (!info[0].IsExternal()) throw NativeError(ErrorCode::InvalidArgument, "use loadModel()");
    handle_ = *info[0].As<Napi::External<std::shared_ptr<ModelHandle>>>().Data();
    info_ = Napi::Persistent(describe(info.Env(), handle_->facts()));
  });
}

std::shared_ptr<ModelHandle> ModelObject::handleOf(const Napi::Value& value, const std::string& what) {
  const bool isModel =
      value.IsObject() && value.As<Napi::Object>().InstanceOf(AddonState::of(value.Env()).model.Value());
  if (!isModel) throw NativeError(ErrorCode::InvalidArgument, what + " must be a NativeModel");
  const ModelObject* object = Unwrap(value.As<Napi::Object>());
  if (!object->handle_) throw NativeError(ErrorCode::Disposed, what + " has been disposed");
  return object->handle_;
}

const std::shared_ptr<ModelHandle>& ModelObject::alive() const {
  if (!handle_) throw NativeError(ErrorCode::Disposed, "the model has been disposed");
  return handle_;
}

int32_t ModelObject::tokenArgument(const Napi::CallbackInfo& call) const {
  const int32_t token = integerArgument(call, 0, "token");
  alive()->requireToken(token, "token");
  return token;
}

Napi::Value ModelObject::info(const Napi::CallbackInfo&) { return info_.Value(); }

Napi::Value ModelObject::tokenize(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    return toInt32Array(call.Env(),
                        alive()->tokenize(textArgument(call, 0, "text"), booleanArgument(call, 1, "addSpecial"),
                                          booleanArgument(call, 2, "parseSpecial")));
  });
}

Napi::Value ModelObject::tokenBytes(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    std::string bytes;
    alive()->appendTokenBytes(tokenArgument(call), booleanArgument(call, 1, "renderSpecial"), bytes);
    return toUint8Array(call.Env(), bytes);
  });
}

Napi::Value ModelObject::isEndOfGeneration(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    return Napi::Boolean::New(call.Env(), llama_vocab_is_eog(alive()->vocab(), tokenArgument(call)));
  });
}

Napi::Value ModelObject::isControl(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    return Napi::Boolean::New(call.Env(), llama_vocab_is_control(alive()->vocab(), tokenArgument(call)));
  });
}

Napi::Value ModelObject::openChat(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    const std::string override = call[0].IsNull() ? std::string() : textArgument(call, 0, "templateOverride");
    return ChatObject::open(call.Env(), alive(), override);
  });
}

Napi::Value ModelObject::grammarFromSchema(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    alive();
    return Napi::String::New(call.Env(), steerage::grammarFromSchema(textArgument(call, 0, "schemaJson")));
  });
}

Napi::Value ModelObject::checkGrammar(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    steerage::checkGrammar(alive()->vocab(), textArgument(call, 0, "grammar"), textArgument(call, 1, "root"));
    return call.Env().Undefined();
  });
}

Napi::Value ModelObject::createContext(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value { return ContextObject::create(call.Env(), alive(), call[0]); });
}

Napi::Value ModelObject::createEmbedder(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value { return EmbedderObject::create(call.Env(), alive(), call[0]); });
}

Napi::Value ModelObject::dispose(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    const Napi::Env env = call.Env();
    if (handle_ && handle_->uses() > 0) {
      throw NativeError(ErrorCode::InvalidArgument, "a context or embedder of this model is still open");
    }
    // Freeing gigabytes takes a while, so the worker does it. Chats may still share the handle: then the last one frees.
    auto slot = std::make_shared<std::shared_ptr<ModelHandle>>(std::move(handle_));
    handle_.reset();
    return AsyncTask::start(
        env, "steerage.disposeModel", [slot] { slot->reset(); },
        [](Napi::Env done) -> Napi::Value { return done.Undefined(); });
  });
}

}  // namespace steerage
