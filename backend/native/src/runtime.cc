#include "runtime.h"

#include <mutex>

#include "ggml-backend.h"
#include "llama.h"
#include "native_error.h"

namespace steerage {

namespace {
std::mutex mutex;
std::string loadedDirectory;
}  // namespace

void Runtime::initialize(const std::string& backendsDirectory) {
  const std::lock_guard<std::mutex> lock(mutex);
  if (!loadedDirectory.empty()) {
    if (loadedDirectory == backendsDirectory) return;
    throw NativeError(ErrorCode::InvalidArgument, "the backends of another folder are loaded already");
  }
  ggml_backend_load_all_from_path(backendsDirectory.c_str());
  if (ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU) == nullptr) {
    throw NativeError(ErrorCode::BackendLoadFailed, "no CPU backend could be loaded from " + backendsDirectory);
  }
  llama_backend_init();
  loadedDirectory = backendsDirectory;
}

void Runtime::requireInitialized() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (loadedDirectory.empty()) throw NativeError(ErrorCode::InvalidArgument, "initialize() has not been called");
}

}  // namespace steerage
