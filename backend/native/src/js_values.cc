#include "js_values.h"

#include <cmath>
#include <cstring>

namespace steerage {

Napi::Error makeJsError(Napi::Env env, ErrorCode code, const std::string& message) {
  Napi::Error error = Napi::Error::New(env, message);
  error.Value().Set("code", Napi::String::New(env, errorCodeName(code)));
  return error;
}

NativeError currentError() {
  try {
    throw;
  } catch (const NativeError& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return NativeError(ErrorCode::OutOfMemory, "out of memory");
  } catch (const std::exception& error) {
    return NativeError(ErrorCode::Internal, error.what());
  } catch (...) {
    return NativeError(ErrorCode::Internal, "an unknown exception");
  }
}

namespace {

[[noreturn]] void refuse(const std::string& message) { throw NativeError(ErrorCode::InvalidArgument, message); }

/// A whole number between the bounds, or a complaint.
int64_t wholeNumber(const Napi::Value& value, const std::string& name, int64_t least, int64_t most) {
  if (!value.IsNumber()) refuse(name + " must be a number");
  const double number = value.As<Napi::Number>().DoubleValue();
  if (std::floor(number) != number || number < static_cast<double>(least) || number > static_cast<double>(most)) {
    refuse(name + " must be a whole number from " + std::to_string(least) + " to " + std::to_string(most));
  }
  return static_cast<int64_t>(number);
}

}  // namespace

ObjectReader::ObjectReader(const Napi::Value& value, std::string what) : what_(std::move(what)) {
  if (!value.IsObject()) refuse(what_ + " must be an object");
  object_ = value.As<Napi::Object>();
}

Napi::Value ObjectReader::member(const char* name) const { return object_.Get(name); }

int32_t ObjectReader::integer(const char* name, int64_t least, int64_t most) const {
  return static_cast<int32_t>(wholeNumber(member(name), path(name), least, most));
}

uint32_t ObjectReader::unsignedInteger(const char* name) const {
  return static_cast<uint32_t>(wholeNumber(member(name), path(name), 0, UINT32_MAX));
}

double ObjectReader::number(const char* name) const {
  const Napi::Value value = member(name);
  if (!value.IsNumber()) refuse(path(name) + " must be a number");
  const double number = value.As<Napi::Number>().DoubleValue();
  if (!std::isfinite(number)) refuse(path(name) + " must be finite");
  return number;
}

bool ObjectReader::boolean(const char* name) const {
  const Napi::Value value = member(name);
  if (!value.IsBoolean()) refuse(path(name) + " must be true or false");
  return value.As<Napi::Boolean>().Value();
}

std::string ObjectReader::text(const char* name) const {
  const Napi::Value value = member(name);
  if (!value.IsString()) refuse(path(name) + " must be a string");
  return value.As<Napi::String>().Utf8Value();
}

Napi::Array ObjectReader::array(const char* name) const {
  const Napi::Value value = member(name);
  if (!value.IsArray()) refuse(path(name) + " must be an array");
  return value.As<Napi::Array>();
}

Napi::Function ObjectReader::function(const char* name) const {
  const Napi::Value value = member(name);
  if (!value.IsFunction()) refuse(path(name) + " must be a function");
  return value.As<Napi::Function>();
}

std::vector<float> ObjectReader::floats(const char* name) const { return floatsOf(member(name), path(name)); }

std::vector<int32_t> ObjectReader::integers(const char* name) const { return integersOf(member(name), path(name)); }

ObjectReader ObjectReader::object(const char* name) const { return ObjectReader(member(name), path(name)); }

std::string textArgument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  if (!info[index].IsString()) refuse(std::string(name) + " must be a string");
  return info[index].As<Napi::String>().Utf8Value();
}

bool booleanArgument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  if (!info[index].IsBoolean()) refuse(std::string(name) + " must be true or false");
  return info[index].As<Napi::Boolean>().Value();
}

int32_t integerArgument(const Napi::CallbackInfo& info, size_t index, const char* name) {
  return static_cast<int32_t>(wholeNumber(info[index], name, INT32_MIN, INT32_MAX));
}

std::vector<int32_t> integersOf(const Napi::Value& value, const std::string& name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_int32_array) {
    refuse(name + " must be an Int32Array");
  }
  const Napi::Int32Array array = value.As<Napi::Int32Array>();
  return std::vector<int32_t>(array.Data(), array.Data() + array.ElementLength());
}

std::vector<float> floatsOf(const Napi::Value& value, const std::string& name) {
  if (!value.IsTypedArray() || value.As<Napi::TypedArray>().TypedArrayType() != napi_float32_array) {
    refuse(name + " must be a Float32Array");
  }
  const Napi::Float32Array array = value.As<Napi::Float32Array>();
  return std::vector<float>(array.Data(), array.Data() + array.ElementLength());
}

Napi::Int32Array toInt32Array(Napi::Env env, const std::vector<int32_t>& values) {
  Napi::Int32Array array = Napi::Int32Array::New(env, values.size());
  if (!values.empty()) std::memcpy(array.Data(), values.data(), values.size() * sizeof(int32_t));
  return array;
}

Napi::Float32Array toFloat32Array(Napi::Env env, const std::vector<float>& values) {
  Napi::Float32Array array = Napi::Float32Array::New(env, values.size());
  if (!values.empty()) std::memcpy(array.Data(), values.data(), values.size() * sizeof(float));
  return array;
}

Napi::Uint8Array toUint8Array(Napi::Env env, const std::string& bytes) {
  Napi::Uint8Array array = Napi::Uint8Array::New(env, bytes.size());
  if (!bytes.empty()) std::memcpy(array.Data(), bytes.data(), bytes.size());
  return array;
}

}  // namespace steerage
