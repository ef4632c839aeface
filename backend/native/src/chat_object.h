// NativeChat of binding.ts: the JavaScript face of ChatTemplates. JavaScript thread only.
#pragma once

#include <napi.h>

#include <memory>

#include "chat_templates.h"

namespace steerage {

class ChatObject : public Napi::ObjectWrap<ChatObject> {
 public:
  static Napi::Function define(Napi::Env env);
  static Napi::Value open(Napi::Env env, std::shared_ptr<ModelHandle> model, const std::string& templateOverride);
  explicit ChatObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value apply(const Napi::CallbackInfo& call);
  Napi::Value parse(const Napi::CallbackInfo& call);

  std::unique_ptr<ChatTemplates> templates_;
};

}  // namespace steerage
