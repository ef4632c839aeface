// GBNF grammars: made from JSON schemas by libllama-common, checked against a vocabulary before a job uses them.
#pragma once

#include <string>

#include "llama.h"

namespace steerage {

/// Throws `grammar_invalid` with the library's message.
std::string grammarFromSchema(const std::string& schemaJson);
void checkGrammar(const llama_vocab* vocab, const std::string& grammar, const std::string& root);

}  // namespace steerage
