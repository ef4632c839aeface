// NativeSae of binding.ts: the JavaScript face of a SaeEncoder. JavaScript thread only.
#pragma once

#include <napi.h>

#include <memory>

#include "sae_encoder.h"

namespace steerage {

class SaeObject : public Napi::ObjectWrap<SaeObject> {
 public:
  static Napi::Function define(Napi::Env env);
  /// The addon's loadSae(tensors).
  static Napi::Value load(const Napi::CallbackInfo& info);
  explicit SaeObject(const Napi::CallbackInfo& info);

  /// The encoder behind a JavaScript value that must be a living NativeSae; `what` names it in messages.
  static std::shared_ptr<const SaeEncoder> encoderOf(const Napi::Value& value, const std::string& what);

 private:
  Napi::Value featureCount(const Napi::CallbackInfo& call);
  Napi::Value embeddingWidth(const Napi::CallbackInfo& call);
  Napi::Value encode(const Napi::CallbackInfo& call);
  Napi::Value dispose(const Napi::CallbackInfo& call);

  std::shared_ptr<const SaeEncoder> encoder_;
  int featureCount_ = 0;
  int embeddingWidth_ = 0;
};

}  // namespace steerage
