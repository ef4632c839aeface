#include "grammar.h"

#include <exception>

#include "json-schema-to-grammar.h"
#include "json.h"
#include "log_sink.h"
#include "native_error.h"

namespace steerage {

std::string grammarFromSchema(const std::string& schemaJson) {
  try {
    return json_schema_to_grammar(common_json::parse(schemaJson));
  } catch (const std::exception& error) {
    throw NativeError(ErrorCode::GrammarInvalid, error.what());
  }
}

void checkGrammar(const llama_vocab* vocab, const std::string& grammar, const std::string& root) {
  const ErrorLines errors;
  llama_sampler* sampler = nullptr;
  try {
    sampler = llama_sampler_init_grammar(vocab, grammar.c_str(), root.c_str());
  } catch (const std::exception& error) {
    throw NativeError(ErrorCode::GrammarInvalid, error.what());
  }
  if (sampler == nullptr) throw NativeError(ErrorCode::GrammarInvalid, errors.textOr("the grammar does not parse"));
  llama_sampler_free(sampler);
}

}  // namespace steerage
