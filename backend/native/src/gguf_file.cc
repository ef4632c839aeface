#include "gguf_file.h"

#include <sys/stat.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>

#include "gguf.h"
#include "log_sink.h"
#include "native_error.h"

namespace steerage {

namespace {

[[noreturn]] void invalid(const std::string& path, const std::string& why) {
  throw NativeError(ErrorCode::ModelFileInvalid, path + ": " + why);
}

}  // namespace

void checkGgufFile(const std::string& path) {
  struct stat facts {};
  if (stat(path.c_str(), &facts) != 0) {
    throw NativeError(ErrorCode::ModelFileMissing, path + ": " + std::strerror(errno));
  }
  if (!S_ISREG(facts.st_mode)) invalid(path, "not a regular file");

  const std::unique_ptr<FILE, int (*)(FILE*)> file(std::fopen(path.c_str(), "rb"), std::fclose);
  if (!file) throw NativeError(ErrorCode::ModelFileMissing, path + ": " + std::strerror(errno));
  char magic[4] = {};
  if (std::fread(magic, 1, sizeof magic, file.get()) != sizeof magic || std::memcmp(magic, "GGUF", 4) != 0) {
    invalid(path, "not a GGUF file");
  }

  const ErrorLines errors;
  const gguf_init_params params{/*no_alloc=*/true, /*ctx=*/nullptr};
  const std::unique_ptr<gguf_context, void (*)(gguf_context*)> header(gguf_init_from_file(path.c_str(), params),
                                                                      gguf_free);
  if (!header) invalid(path, "truncated or damaged header (" + errors.textOr("unreadable") + ")");
  const uint64_t dataStart = gguf_get_data_offset(header.get());
  uint64_t end = dataStart;
  const int64_t tensorCount = gguf_get_n_tensors(header.get());
  for (int64_t i = 0; i < tensorCount; i++) {
    const uint64_t tensorEnd =
        dataStart + gguf_get_tensor_offset(header.get(), i) + gguf_get_tensor_size(header.get(), i);
    if (tensorEnd > end) end = tensorEnd;
  }
  if (static_cast<uint64_t>(facts.st_size) < end) {
    invalid(path, "truncated: " + std::to_string(facts.st_size) + " bytes of " + std::to_string(end));
  }
}

}  // namespace steerage
