// Looks at a model file before llama.cpp loads it, so that "missing", "not GGUF" and "truncated" can be told apart.
#pragma once

#include <string>

namespace steerage {

/// Throws `model_file_missing` or `model_file_invalid`; returns when header and tensor data are all there.
void checkGgufFile(const std::string& path);

}  // namespace steerage
