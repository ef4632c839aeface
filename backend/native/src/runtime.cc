#include "runtime.h"

#include <unistd.h>

#include <mutex>

#include "ggml-backend.h"
#include "llama.h"
#include "native_error.h"

namespace steerage {

namespace {
std::mutex mutex;
std::string loadedDirectory;
/// A variant's folder says what it is for by the library it holds. ggml skips a backend that does not load without a
/// word, and the model would then run on the CPU.
void requireAccelerator(const std::string& directory) {
  struct Accelerator {
    const char* library;
    const char* registry;
    const char* hint;
  };
  for (const Accelerator& wanted : {Accelerator{"libggml-cuda.so", "CUDA", "libcudart.so.13 and libcublas.so.13"},
                                    Accelerator{"libggml-vulkan.so", "Vulkan", "libvulkan.so.1"}}) {
    if (access((directory + "/" + wanted.library).c_str(), F_OK) != 0) continue;
    const ggml_backend_reg_t registry = ggml_backend_reg_by_name(wanted.registry);
    if (registry == nullptr) {
      throw NativeError(ErrorCode::BackendLoadFailed,
                        std::string(wanted.library) + " does not load: it needs " + wanted.hint);
    }
    if (ggml_backend_reg_dev_count(registry) == 0) {
      throw NativeError(ErrorCode::BackendLoadFailed, std::string(wanted.registry) + " finds no device");
    }
  }
}

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
  requireAccelerator(backendsDirectory);
  llama_backend_init();
  loadedDirectory = backendsDirectory;
}

void Runtime::requireInitialized() {
  const std::lock_guard<std::mutex> lock(mutex);
  if (loadedDirectory.empty()) throw NativeError(ErrorCode::InvalidArgument, "initialize() has not been called");
}

}  // namespace steerage
