// Between JavaScript values and C++ values: checked reading of option objects, and the guard that keeps every C++
// exception on this side of N-API. JavaScript thread only.
#pragma once

#include <napi.h>

#include <cstdint>
#include <exception>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "native_error.h"

namespace steerage {

/// A JavaScript Error carrying `code`.
Napi::Error makeJsError(Napi::Env env, ErrorCode code, const std::string& message);

/// The code and text of the exception that is being handled; call it inside a catch block.
NativeError currentError();

/// Runs `body` and turns any C++ exception into a thrown JavaScript Error with a code.
template <typename Body>
auto guarded(Napi::Env env, Body&& body) -> decltype(body()) {
  try {
    return body();
  } catch (const Napi::Error&) {
    throw;
  } catch (...) {
    const NativeError error = currentError();
    throw makeJsError(env, error.code(), error.what());
  }
}

/// Reads the members of one options object and names the member in every complaint.
class ObjectReader {
 public:
  /// `what` is how the object is called in messages, such as "job.sampler".
  ObjectReader(const Napi::Value& value, std::string what);

  int32_t integer(const char* name, int64_t least, int64_t most) const;
  uint32_t unsignedInteger(const char* name) const;
  double number(const char* name) const;
  bool boolean(const char* name) const;
  std::string text(const char* name) const;
  Napi::Array array(const char* name) const;
  Napi::Value member(const char* name) const;
  Napi::Function function(const char* name) const;
  std::vector<float> floats(const char* name) const;
  std::vector<int32_t> integers(const char* name) const;
  ObjectReader object(const char* name) const;
  /// The path of a member in messages.
  std::string path(const char* name) const { return what_ + "." + name; }

 private:
  Napi::Object object_;
  std::string what_;
};

/// Arguments of a function call, checked.
std::string textArgument(const Napi::CallbackInfo& info, size_t index, const char* name);
bool booleanArgument(const Napi::CallbackInfo& info, size_t index, const char* name);
int32_t integerArgument(const Napi::CallbackInfo& info, size_t index, const char* name);
std::vector<int32_t> integersOf(const Napi::Value& value, const std::string& name);
std::vector<float> floatsOf(const Napi::Value& value, const std::string& name);

Napi::Int32Array toInt32Array(Napi::Env env, const std::vector<int32_t>& values);
Napi::Float32Array toFloat32Array(Napi::Env env, const std::vector<float>& values);
Napi::Uint8Array toUint8Array(Napi::Env env, const std::string& bytes);

}  // namespace steerage
