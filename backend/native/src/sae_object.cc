#include "sae_object.h"

#include "addon.h"
#include "js_values.h"

namespace steerage {

namespace {

SaeActivation activationOf(const std::string& name) {
  if (name == "relu") return SaeActivation::Relu;
  if (name == "jumprelu") return SaeActivation::JumpRelu;
  if (name == "gated") return SaeActivation::Gated;
  if (name == "topk") return SaeActivation::TopK;
  throw NativeError(ErrorCode::InvalidArgument, "tensors.activation must be relu, jumprelu, gated or topk");
}

SaeNormalization normalizationOf(const std::string& name) {
  if (name == "none") return SaeNormalization::None;
  if (name == "layer_norm") return SaeNormalization::LayerNorm;
  if (name == "constant_norm") return SaeNormalization::ConstantNorm;
  throw NativeError(ErrorCode::InvalidArgument, "tensors.normalization must be none, layer_norm or constant_norm");
}

}  // namespace

Napi::Function SaeObject::define(Napi::Env env) {
  return DefineClass(env, "NativeSae",
                     {
                         InstanceAccessor<&SaeObject::featureCount>("featureCount"),
                         InstanceAccessor<&SaeObject::embeddingWidth>("embeddingWidth"),
                         InstanceMethod<&SaeObject::encode>("encode"),
                         InstanceMethod<&SaeObject::dispose>("dispose"),
                     });
}

Napi::Value SaeObject::load(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value { return AddonState::of(info.Env()).sae.New({info[0]}); });
}

SaeObject::SaeObject(const Napi::CallbackInfo& info) : Napi::ObjectWrap<SaeObject>(info) {
  guarded(info.Env(), [&] {
    const ObjectReader tensors(info[0], "tensors");
    SaeWeights weights;
    weights.embeddingWidth = tensors.integer("embeddingWidth", 1, 1 << 20);
    weights.featureCount = tensors.integer("featureCount", 1, 1 << 26);
    weights.encoderColumns = tensors.floats("encoderColumns");
    weights.encoderBias = tensors.floats("encoderBias");
    weights.decoderBias = tensors.floats("decoderBias");
    weights.applyDecoderBiasToInput = tensors.boolean("applyDecoderBiasToInput");
    weights.threshold = tensors.floats("threshold");
    weights.activation = activationOf(tensors.text("activation"));
    if (!tensors.member("normalization").IsUndefined()) {
      weights.normalization = normalizationOf(tensors.text("normalization"));
    }
    if (weights.activation == SaeActivation::Gated) {
      weights.gateBias = tensors.floats("gateBias");
      weights.magnitudeScale = tensors.floats("magnitudeScale");
    }
    if (weights.activation == SaeActivation::TopK) weights.activeCount = tensors.integer("activeCount", 1, 1 << 26);
    encoder_ = std::make_shared<const SaeEncoder>(std::move(weights));
    featureCount_ = encoder_->featureCount();
    embeddingWidth_ = encoder_->embeddingWidth();
  });
}

std::shared_ptr<const SaeEncoder> SaeObject::encoderOf(const Napi::Value& value, const std::string& what) {
  const bool isSae =
      value.IsObject() && value.As<Napi::Object>().InstanceOf(AddonState::of(value.Env()).sae.Value());
  if (!isSae) throw NativeError(ErrorCode::InvalidArgument, what + " must be a NativeSae");
  const SaeObject* object = Unwrap(value.As<Napi::Object>());
  if (!object->encoder_) throw NativeError(ErrorCode::Disposed, what + " has been disposed");
  return object->encoder_;
}

Napi::Value SaeObject::featureCount(const Napi::CallbackInfo& call) {
  return Napi::Number::New(call.Env(), featureCount_);
}

Napi::Value SaeObject::embeddingWidth(const Napi::CallbackInfo& call) {
  return Napi::Number::New(call.Env(), embeddingWidth_);
}

Napi::Value SaeObject::encode(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    if (!encoder_) throw NativeError(ErrorCode::Disposed, "the SAE has been disposed");
    const std::vector<float> rows = floatsOf(call[0], "rows");
    const auto width = static_cast<size_t>(embeddingWidth_);
    if (rows.size() % width != 0) {
      throw NativeError(ErrorCode::InvalidArgument, "rows must be a multiple of the width " + std::to_string(width));
    }
    const size_t count = rows.size() / width;
    const auto features = static_cast<size_t>(featureCount_);
    Napi::Float32Array out = Napi::Float32Array::New(call.Env(), count * features);
    std::vector<float> scratch;
    for (size_t r = 0; r < count; r++) {
      encoder_->encodeAll(rows.data() + r * width, scratch, out.Data() + r * features);
    }
    return out;
  });
}

Napi::Value SaeObject::dispose(const Napi::CallbackInfo& call) {
  // Jobs that sense with it keep their own share until they end.
  encoder_.reset();
  return call.Env().Undefined();
}

}  // namespace steerage
