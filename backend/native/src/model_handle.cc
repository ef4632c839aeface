#include "model_handle.h"

#include "gguf_file.h"
#include "log_sink.h"
#include "native_error.h"

namespace steerage {

std::shared_ptr<ModelHandle> ModelHandle::load(const ModelSettings& settings) {
  checkGgufFile(settings.path);
  if (settings.tensorSplit.size() > llama_max_devices()) {
    throw NativeError(ErrorCode::InvalidArgument,
                      "tensorSplit names more than " + std::to_string(llama_max_devices()) + " devices");
  }
  std::vector<float> split = settings.tensorSplit;
  split.resize(llama_max_devices(), 0.0f);
  llama_model_params params = llama_model_default_params();
  params.n_gpu_layers = settings.gpuLayers;
  params.load_mode = settings.useMmap ? LLAMA_LOAD_MODE_MMAP : LLAMA_LOAD_MODE_NONE;
  if (!settings.tensorSplit.empty()) params.tensor_split = split.data();

  const ErrorLines errors;
  llama_model* model = llama_model_load_from_file(settings.path.c_str(), params);
  if (model == nullptr) {
    const bool memory = errors.contains("alloc") || errors.contains("out of memory");
    throw NativeError(memory ? ErrorCode::OutOfMemory : ErrorCode::ModelUnsupported,
                      settings.path + ": " + errors.textOr("llama.cpp gave no reason"));
  }
  return std::shared_ptr<ModelHandle>(new ModelHandle(model));
}

ModelHandle::ModelHandle(llama_model* model) : model_(model), vocab_(llama_model_get_vocab(model)) {
  readFacts();
}

ModelHandle::~ModelHandle() { llama_model_free(model_); }

void ModelHandle::readFacts() {
  ModelFacts& facts = facts_;
  facts.layerCount = llama_model_n_layer(model_);
  facts.embeddingWidth = llama_model_n_embd(model_);
  facts.vocabularySize = llama_vocab_n_tokens(vocab_);
  facts.trainingContextLength = llama_model_n_ctx_train(model_);
  facts.slidingWindow = llama_model_n_swa(model_);
  facts.recurrent = llama_model_is_recurrent(model_);
  facts.hybrid = llama_model_is_hybrid(model_);
  facts.parameterCount = llama_model_n_params(model_);
  facts.sizeBytes = llama_model_size(model_);
  const char* chatTemplate = llama_model_chat_template(model_, nullptr);
  if (chatTemplate != nullptr) facts.chatTemplate = chatTemplate;
  facts.bosToken = llama_vocab_bos(vocab_);
  facts.eosToken = llama_vocab_eos(vocab_);
  facts.addsBos = llama_vocab_get_add_bos(vocab_);

  const int count = llama_model_meta_count(model_);
  for (int i = 0; i < count; i++) {
    char key[256];
    if (llama_model_meta_key_by_index(model_, i, key, sizeof key) < 0) continue;
    const int length = llama_model_meta_val_str_by_index(model_, i, nullptr, 0);
    if (length < 0) continue;
    std::string value(static_cast<size_t>(length) + 1, '\0');
    llama_model_meta_val_str_by_index(model_, i, value.data(), value.size());
    value.resize(static_cast<size_t>(length));
    // llama.cpp prints arrays as "[...]" cut short or whole; binding.ts leaves them out.
    if (!value.empty() && value.front() == '[') continue;
    facts.metadata.emplace(key, std::move(value));
  }
  const auto architecture = facts.metadata.find("general.architecture");
  if (architecture != facts.metadata.end()) facts.architecture = architecture->second;
}

std::vector<int32_t> ModelHandle::tokenize(const std::string& text, bool addSpecial, bool parseSpecial) const {
  std::vector<int32_t> tokens(text.size() / 2 + 16);
  const auto length = static_cast<int32_t>(text.size());
  int32_t count = llama_tokenize(vocab_, text.data(), length, tokens.data(), static_cast<int32_t>(tokens.size()),
                                 addSpecial, parseSpecial);
  if (count == INT32_MIN) throw NativeError(ErrorCode::InvalidArgument, "the text is too long to tokenize");
  if (count < 0) {
    tokens.resize(static_cast<size_t>(-count));
    count = llama_tokenize(vocab_, text.data(), length, tokens.data(), static_cast<int32_t>(tokens.size()), addSpecial,
                           parseSpecial);
  }
  if (count < 0) throw NativeError(ErrorCode::Internal, "the tokenizer changed its mind about the number of tokens");
  tokens.resize(static_cast<size_t>(count));
  return tokens;
}

int ModelHandle::positionLimit() const {
  return llama_model_rope_type(model_) == LLAMA_ROPE_TYPE_NONE ? facts_.trainingContextLength : INT32_MAX;
}

void ModelHandle::requireToken(llama_token token, const char* what) const {
  if (token >= 0 && token < facts_.vocabularySize) return;
  throw NativeError(ErrorCode::InvalidArgument, std::string(what) + ": token " + std::to_string(token) +
                                                    " is outside the vocabulary of " +
                                                    std::to_string(facts_.vocabularySize));
}

void ModelHandle::appendTokenBytes(llama_token token, bool renderSpecial, std::string& out) const {
  char piece[128];
  int32_t length = llama_token_to_piece(vocab_, token, piece, sizeof piece, 0, renderSpecial);
  if (length >= 0) {
    out.append(piece, static_cast<size_t>(length));
    return;
  }
  std::string longer(static_cast<size_t>(-length), '\0');
  length = llama_token_to_piece(vocab_, token, longer.data(), -length, 0, renderSpecial);
  if (length > 0) out.append(longer.data(), static_cast<size_t>(length));
}

}  // namespace steerage
