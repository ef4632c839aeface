#include "live_loops.h"

#include <algorithm>
#include <cstdlib>
#include <mutex>
#include <vector>

#include "decode_loop.h"

namespace steerage {

namespace {

struct Registry {
  std::mutex mutex;
  std::vector<std::weak_ptr<DecodeLoop>> loops;
};

/// Never destroyed: it is used while the process goes down.
Registry& registry() {
  static auto* instance = new Registry();
  return *instance;
}

void stopAll() {
  std::vector<std::weak_ptr<DecodeLoop>> loops;
  {
    const std::lock_guard<std::mutex> lock(registry().mutex);
    loops.swap(registry().loops);
  }
  for (const std::weak_ptr<DecodeLoop>& weak : loops) {
    if (const auto loop = weak.lock()) loop->stopSilently();
  }
}

}  // namespace

void LiveLoops::add(const std::shared_ptr<DecodeLoop>& loop) {
  // Registered after the libraries have been loaded, so run before their own destructors.
  static const int registered = std::atexit(stopAll);
  static_cast<void>(registered);
  const std::lock_guard<std::mutex> lock(registry().mutex);
  auto& loops = registry().loops;
  loops.erase(std::remove_if(loops.begin(), loops.end(), [](const auto& weak) { return weak.expired(); }), loops.end());
  loops.push_back(loop);
}

}  // namespace steerage
