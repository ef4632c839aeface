// State of the addon in one JavaScript environment: the class constructors, so that one wrapped object can make another.
#pragma once

#include <napi.h>

namespace steerage {

struct AddonState {
  Napi::FunctionReference model;
  Napi::FunctionReference chat;
  Napi::FunctionReference context;
  Napi::FunctionReference sae;
  Napi::FunctionReference embedder;
  Napi::FunctionReference accountBoard;

  static AddonState& of(Napi::Env env) { return *env.GetInstanceData<AddonState>(); }
};

}  // namespace steerage
