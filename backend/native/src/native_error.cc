#include "native_error.h"

namespace steerage {

const char* errorCodeName(ErrorCode code) {
  switch (code) {
    case ErrorCode::InvalidArgument: return "invalid_argument";
    case ErrorCode::Disposed: return "disposed";
    case ErrorCode::BackendLoadFailed: return "backend_load_failed";
    case ErrorCode::ModelFileMissing: return "model_file_missing";
    case ErrorCode::ModelFileInvalid: return "model_file_invalid";
    case ErrorCode::ModelUnsupported: return "model_unsupported";
    case ErrorCode::OutOfMemory: return "out_of_memory";
    case ErrorCode::ContextFailed: return "context_failed";
    case ErrorCode::DecodeFailed: return "decode_failed";
    case ErrorCode::RowOwnershipViolation: return "row_ownership_violation";
    case ErrorCode::HookPointUnsupported: return "hook_point_unsupported";
    case ErrorCode::SaeShapeMismatch: return "sae_shape_mismatch";
    case ErrorCode::GrammarInvalid: return "grammar_invalid";
    case ErrorCode::TemplateFailed: return "template_failed";
    case ErrorCode::NonFiniteLogits: return "non_finite_logits";
    case ErrorCode::Internal: return "internal";
  }
  return "internal";
}

}  // namespace steerage
