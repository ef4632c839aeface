// The module's exports: NativeAddon of binding.ts.
#include "addon.h"

#include "account_board_object.h"
#include "chat_object.h"
#include "context_object.h"
#include "embedder_object.h"
#include "js_values.h"
#include "log_sink.h"
#include "model_object.h"
#include "runtime.h"
#include "sae_object.h"

namespace steerage {

namespace {

constexpr int kInterfaceVersion = 6;

Napi::Value initialize(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value {
    const ObjectReader options(info[0], "options");
    const std::string directory = options.text("backendsDirectory");
    LogSink::install(info.Env(), options.function("onLog"));
    Runtime::initialize(directory);
    return info.Env().Undefined();
  });
}

Napi::Object exportAddon(Napi::Env env, Napi::Object exports) {
  auto* state = new AddonState();
  env.SetInstanceData(state);
  state->model = Napi::Persistent(ModelObject::define(env));
  state->chat = Napi::Persistent(ChatObject::define(env));
  state->context = Napi::Persistent(ContextObject::define(env));
  state->sae = Napi::Persistent(SaeObject::define(env));
  state->embedder = Napi::Persistent(EmbedderObject::define(env));
  state->accountBoard = Napi::Persistent(AccountBoardObject::define(env));
  env.AddCleanupHook([] { LogSink::remove(); });

  exports.Set("interfaceVersion", Napi::Number::New(env, kInterfaceVersion));
  exports.Set("llamaRelease", Napi::String::New(env, STEERAGE_LLAMA_RELEASE));
  exports.Set("initialize", Napi::Function::New(env, initialize, "initialize"));
  exports.Set("loadModel", Napi::Function::New(env, ModelObject::load, "loadModel"));
  exports.Set("openAccountBoard", Napi::Function::New(env, AccountBoardObject::open, "openAccountBoard"));
  exports.Set("loadSae", Napi::Function::New(env, SaeObject::load, "loadSae"));
  return exports;
}

}  // namespace

}  // namespace steerage

static Napi::Object init(Napi::Env env, Napi::Object exports) { return steerage::exportAddon(env, exports); }

NODE_API_MODULE(steerage_native, init)
