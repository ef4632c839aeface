// A loaded llama.cpp model and its vocabulary, shared by everything that works on it. Immutable after loading, so any
// thread may use it. Contexts hold a ModelUse; the model refuses to be disposed while one lives.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "llama.h"

namespace steerage {

struct ModelSettings {
  std::string path;
  int gpuLayers = -1;
  bool useMmap = true;
  std::vector<float> tensorSplit;
};

struct ModelFacts {
  std::string architecture;
  int layerCount = 0;
  int embeddingWidth = 0;
  int vocabularySize = 0;
  int trainingContextLength = 0;
  int slidingWindow = 0;
  bool recurrent = false;
  bool hybrid = false;
  uint64_t parameterCount = 0;
  uint64_t sizeBytes = 0;
  std::optional<std::string> chatTemplate;
  llama_token bosToken = LLAMA_TOKEN_NULL;
  llama_token eosToken = LLAMA_TOKEN_NULL;
  bool addsBos = false;
  std::map<std::string, std::string> metadata;
};

class ModelHandle {
 public:
  /// Blocking. Throws `model_file_missing`, `model_file_invalid`, `model_unsupported`, `out_of_memory`.
  static std::shared_ptr<ModelHandle> load(const ModelSettings& settings);
  ~ModelHandle();
  ModelHandle(const ModelHandle&) = delete;
  ModelHandle& operator=(const ModelHandle&) = delete;

  llama_model* model() const { return model_; }
  const llama_vocab* vocab() const { return vocab_; }
  const ModelFacts& facts() const { return facts_; }

  std::vector<int32_t> tokenize(const std::string& text, bool addSpecial, bool parseSpecial) const;
  /// Appends the token's bytes. The token must lie inside the vocabulary.
  void appendTokenBytes(llama_token token, bool renderSpecial, std::string& out) const;
  void requireToken(llama_token token, const char* what) const;
  /// Positions below this one exist. Only learned position tables end; the graph would abort the process beyond.
  int positionLimit() const;
  int uses() const { return uses_.load(); }

 private:
  friend class ModelUse;
  explicit ModelHandle(llama_model* model);
  void readFacts();

  llama_model* model_;
  const llama_vocab* vocab_;
  ModelFacts facts_;
  std::atomic<int> uses_{0};
};

/// Keeps a model alive and counted as in use; released by its destructor.
class ModelUse {
 public:
  explicit ModelUse(std::shared_ptr<ModelHandle> model) : model_(std::move(model)) { model_->uses_++; }
  ~ModelUse() { model_->uses_--; }
  ModelUse(const ModelUse&) = delete;
  ModelUse& operator=(const ModelUse&) = delete;
  const ModelHandle& operator*() const { return *model_; }
  const ModelHandle* operator->() const { return model_.get(); }

 private:
  std::shared_ptr<ModelHandle> model_;
};

}  // namespace steerage
