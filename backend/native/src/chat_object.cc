#include "chat_object.h"

#include "addon.h"
#include "js_values.h"

namespace steerage {

namespace {

Napi::Array toStrings(Napi::Env env, const std::vector<std::string>& values) {
  Napi::Array array = Napi::Array::New(env, values.size());
  for (uint32_t i = 0; i < values.size(); i++) array.Set(i, values[i]);
  return array;
}

}  // namespace

Napi::Function ChatObject::define(Napi::Env env) {
  return DefineClass(env, "NativeChat",
                     {InstanceMethod<&ChatObject::apply>("apply"), InstanceMethod<&ChatObject::parse>("parse")});
}

Napi::Value ChatObject::open(Napi::Env env, std::shared_ptr<ModelHandle> model, const std::string& templateOverride) {
  auto templates = std::make_unique<ChatTemplates>(std::move(model), templateOverride);
  Napi::Value object = AddonState::of(env).chat.New({Napi::External<ChatTemplates>::New(env, templates.get())});
  // The object's constructor took it over.
  templates.release();
  return object;
}

ChatObject::ChatObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<ChatObject>(info) {
  guarded(info.Env(), [&] {
    if (!info[0].IsExternal()) throw NativeError(ErrorCode::InvalidArgument, "use NativeModel.openChat()");
    templates_.reset(info[0].As<Napi::External<ChatTemplates>>().Data());
  });
}

Napi::Value ChatObject::apply(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    const Napi::Env env = call.Env();
    const ChatPrompt applied = templates_->apply(textArgument(call, 0, "request"));
    Napi::Object out = Napi::Object::New(env);
    out.Set("prompt", applied.prompt);
    out.Set("grammar", applied.grammar);
    out.Set("grammarLazy", applied.grammarLazy);
    out.Set("grammarTriggers", applied.grammarTriggers);
    out.Set("preservedTokens", toStrings(env, applied.preservedTokens));
    out.Set("additionalStops", toStrings(env, applied.additionalStops));
    out.Set("parser", applied.parser);
    out.Set("supportsThinking", applied.supportsThinking);
    return out;
  });
}

Napi::Value ChatObject::parse(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    return Napi::String::New(call.Env(),
                             templates_->parse(textArgument(call, 0, "text"), booleanArgument(call, 1, "partial"),
                                               textArgument(call, 2, "parser")));
  });
}

}  // namespace steerage
