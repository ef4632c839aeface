// NativeAccountBoard of binding.ts: the JavaScript face of an AccountBoard. JavaScript thread only.
#pragma once

#include <napi.h>

#include <memory>
#include <string>

#include "account_board.h"

namespace steerage {

class AccountBoardObject : public Napi::ObjectWrap<AccountBoardObject> {
 public:
  static Napi::Function define(Napi::Env env);
  /// The addon's openAccountBoard(path).
  static Napi::Value open(const Napi::CallbackInfo& info);
  explicit AccountBoardObject(const Napi::CallbackInfo& info);

  /// The board behind a JavaScript value that must be a NativeAccountBoard; `what` names it in messages.
  static std::shared_ptr<AccountBoard> boardOf(const Napi::Value& value, const std::string& what);

 private:
  Napi::Value claim(const Napi::CallbackInfo& call);
  Napi::Value setComputedPrompt(const Napi::CallbackInfo& call);
  Napi::Value release(const Napi::CallbackInfo& call);
  AccountBoard::Record* recordArgument(const Napi::CallbackInfo& call) const;

  std::shared_ptr<AccountBoard> board_;
};

}  // namespace steerage
