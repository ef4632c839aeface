// Every running decode loop of the process. At exit they must stop before the destructors of the llama.cpp libraries
// run: process.exit() runs those, but neither finalisers nor Node's clean-up hooks.
#pragma once

#include <memory>

namespace steerage {

class DecodeLoop;

class LiveLoops {
 public:
  /// Remembers the loop as long as it lives. Any thread.
  static void add(const std::shared_ptr<DecodeLoop>& loop);
};

}  // namespace steerage
