// The error type of the native core. Code below the N-API surface throws it and nothing else on purpose; the surface
// turns it into a JavaScript Error whose `code` is a NativeErrorCode of binding.ts.
#pragma once

#include <stdexcept>
#include <string>

namespace steerage {

enum class ErrorCode {
  InvalidArgument,
  Disposed,
  BackendLoadFailed,
  ModelFileMissing,
  ModelFileInvalid,
  ModelUnsupported,
  OutOfMemory,
  ContextFailed,
  DecodeFailed,
  RowOwnershipViolation,
  HookPointUnsupported,
  SaeShapeMismatch,
  GrammarInvalid,
  TemplateFailed,
  NonFiniteLogits,
  Internal,
};

/// The spelling that binding.ts gives a code.
const char* errorCodeName(ErrorCode code);

class NativeError : public std::runtime_error {
 public:
  NativeError(ErrorCode code, const std::string& message) : std::runtime_error(message), code_(code) {}
  ErrorCode code() const { return code_; }

 private:
  ErrorCode code_;
};

}  // namespace steerage
