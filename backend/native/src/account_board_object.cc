#include "account_board_object.h"

#include "addon.h"
#include "js_values.h"

namespace steerage {

namespace {

uint32_t countArgument(const Napi::CallbackInfo& call, size_t index, const char* name) {
  const int32_t count = integerArgument(call, index, name);
  if (count < 0) throw NativeError(ErrorCode::InvalidArgument, std::string(name) + " must not be negative");
  return static_cast<uint32_t>(count);
}

}  // namespace

Napi::Function AccountBoardObject::define(Napi::Env env) {
  return DefineClass(env, "NativeAccountBoard",
                     {
                         InstanceMethod<&AccountBoardObject::claim>("claim"),
                         InstanceMethod<&AccountBoardObject::setComputedPrompt>("setComputedPrompt"),
                         InstanceMethod<&AccountBoardObject::release>("release"),
                     });
}

Napi::Value AccountBoardObject::open(const Napi::CallbackInfo& info) {
  return guarded(info.Env(), [&]() -> Napi::Value { return AddonState::of(info.Env()).accountBoard.New({info[0]}); });
}

AccountBoardObject::AccountBoardObject(const Napi::CallbackInfo& info)
    : Napi::ObjectWrap<AccountBoardObject>(info) {
  guarded(info.Env(), [&] { board_ = std::make_shared<AccountBoard>(textArgument(info, 0, "path")); });
}

std::shared_ptr<AccountBoard> AccountBoardObject::boardOf(const Napi::Value& value, const std::string& what) {
  const bool isBoard = value.IsObject() &&
                       value.As<Napi::Object>().InstanceOf(AddonState::of(value.Env()).accountBoard.Value());
  if (!isBoard) throw NativeError(ErrorCode::InvalidArgument, what + " must be a NativeAccountBoard");
  return Unwrap(value.As<Napi::Object>())->board_;
}

Napi::Value AccountBoardObject::claim(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    const AccountBoard::Record* record = board_->claim(
        textArgument(call, 0, "label"), countArgument(call, 1, "promptTokens"), countArgument(call, 2, "keepTokens"));
    return Napi::Number::New(call.Env(), record == nullptr ? -1 : board_->placeOf(record));
  });
}

Napi::Value AccountBoardObject::setComputedPrompt(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    const uint32_t tokens = countArgument(call, 1, "tokens");
    if (AccountBoard::Record* record = recordArgument(call)) record->computedPrompt.store(tokens);
    return call.Env().Undefined();
  });
}

Napi::Value AccountBoardObject::release(const Napi::CallbackInfo& call) {
  return guarded(call.Env(), [&]() -> Napi::Value {
    if (AccountBoard::Record* record = recordArgument(call)) AccountBoard::release(record);
    return call.Env().Undefined();
  });
}

AccountBoard::Record* AccountBoardObject::recordArgument(const Napi::CallbackInfo& call) const {
  return board_->at(integerArgument(call, 0, "record"));
}

}  // namespace steerage
