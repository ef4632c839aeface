// What exists once per process: the loaded compute backends.
#pragma once

#include <string>

namespace steerage {

class Runtime {
 public:
  /// Loads the backends of one library folder. A second call for the same folder does nothing, for another one it is
  /// refused: ggml keeps its backends for the life of the process.
  static void initialize(const std::string& backendsDirectory);
  /// `invalid_argument` before initialize().
  static void requireInitialized();
};

}  // namespace steerage
