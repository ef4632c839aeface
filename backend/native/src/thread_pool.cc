#include "thread_pool.h"

#include <cstring>

#include "ggml-backend.h"
#include "native_error.h"

namespace steerage {

namespace {
// How long idle compute threads spin before they sleep, 0 to 100: ggml's own default.
constexpr uint32_t kPollLevel = 50;
}  // namespace

ThreadPool::ThreadPool(int threads) {
  ggml_backend_dev_t cpu = ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU);
  ggml_backend_reg_t registry = cpu == nullptr ? nullptr : ggml_backend_dev_backend_reg(cpu);
  using Create = ggml_threadpool* (*)(ggml_threadpool_params*);
  const auto create = registry == nullptr
                          ? nullptr
                          : reinterpret_cast<Create>(ggml_backend_reg_get_proc_address(registry, "ggml_threadpool_new"));
  free_ = registry == nullptr
              ? nullptr
              : reinterpret_cast<Free>(ggml_backend_reg_get_proc_address(registry, "ggml_threadpool_free"));
  if (create == nullptr || free_ == nullptr) {
    throw NativeError(ErrorCode::BackendLoadFailed, "the CPU backend offers no thread pools");
  }
  ggml_threadpool_params params;
  std::memset(&params, 0, sizeof params);
  params.n_threads = threads;
  params.prio = GGML_SCHED_PRIO_NORMAL;
  params.poll = kPollLevel;
  pool_ = create(&params);
  if (pool_ == nullptr) throw NativeError(ErrorCode::OutOfMemory, "no compute threads could be started");
}

ThreadPool::~ThreadPool() {
  if (pool_ != nullptr) free_(pool_);
}

}  // namespace steerage
