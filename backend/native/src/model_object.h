// NativeModel of binding.ts: the JavaScript face of a ModelHandle. JavaScript thread only.
#pragma once

#include <napi.h>

#include <memory>

#include "model_handle.h"

namespace steerage {

class ModelObject : public Napi::ObjectWrap<ModelObject> {
 public:
  static Napi::Function define(Napi::Env env);
  /// The addon's loadModel(options).
  static Napi::Value load(const Napi::CallbackInfo& info);
  explicit ModelObject(const Napi::CallbackInfo& info);

  /// The model behind a JavaScript value that must be a living NativeModel; `what` names it in messages.
  static std::shared_ptr<ModelHandle> handleOf(const Napi::Value& value, const std::string& what);

 private:
  Napi::Value info(const Napi::CallbackInfo& call);
  Napi::Value tokenize(const Napi::CallbackInfo& call);
  Napi::Value tokenBytes(const Napi::CallbackInfo& call);
  Napi::Value isEndOfGeneration(const Napi::CallbackInfo& call);
  Napi::Value isControl(const Napi::CallbackInfo& call);
  Napi::Value openChat(const Napi::CallbackInfo& call);
  Napi::Value grammarFromSchema(const Napi::CallbackInfo& call);
  Napi::Value checkGrammar(const Napi::CallbackInfo& call);
  Napi::Value createContext(const Napi::CallbackInfo& call);
  Napi::Value createEmbedder(const Napi::CallbackInfo& call);
  Napi::Value dispose(const Napi::CallbackInfo& call);

  /// The model, or `disposed`.
  const std::shared_ptr<ModelHandle>& alive() const;
  int32_t tokenArgument(const Napi::CallbackInfo& call) const;

  std::shared_ptr<ModelHandle> handle_;
  Napi::ObjectReference info_;
};

}  // namespace steerage
