// NativeEmbedder of binding.ts: the JavaScript face of an Embedder. JavaScript thread only.
#pragma once

#include <napi.h>

#include <memory>

#include "embedder.h"

namespace steerage {

class EmbedderObject : public Napi::ObjectWrap<EmbedderObject> {
 public:
  static Napi::Function define(Napi::Env env);
  /// Promise of a NativeEmbedder.
  static Napi::Value create(Napi::Env env, std::shared_ptr<ModelHandle> model, const Napi::Value& options);
  explicit EmbedderObject(const Napi::CallbackInfo& info);

 private:
  Napi::Value embed(const Napi::CallbackInfo& call);
  Napi::Value dispose(const Napi::CallbackInfo& call);

  std::shared_ptr<Embedder> embedder_;
  bool disposed_ = false;
};

}  // namespace steerage
