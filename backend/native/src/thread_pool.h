// A compute thread pool of the loaded CPU backend. Without one attached, the prebuilt backend makes and joins its
// threads at every decode, which on a small machine costs most of the throughput.
#pragma once

#include <memory>

#include "ggml.h"
#include "llama.h"

namespace steerage {

class ThreadPool {
 public:
  /// Throws `backend_load_failed` when the CPU backend offers no pools.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;
  /// The pool must outlive the context.
  void attachTo(llama_context* context) const { llama_attach_threadpool(context, pool_, nullptr); }

 private:
  using Free = void (*)(ggml_threadpool*);
  ggml_threadpool* pool_ = nullptr;
  Free free_ = nullptr;
};

}  // namespace steerage
