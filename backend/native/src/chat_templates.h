// Chat templates and answer parsing of libllama-common: from an OpenAI request to a prompt with its grammar, and from
// the text of an answer back to an OpenAI message. JavaScript thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "model_handle.h"

struct common_chat_templates;

namespace steerage {

struct ChatPrompt {
  std::string prompt;
  std::string grammar;
  bool grammarLazy = false;
  std::string grammarTriggers;
  std::vector<std::string> preservedTokens;
  std::vector<std::string> additionalStops;
  std::string parser;
  /// The template marks reasoning apart from the answer.
  bool supportsThinking = false;
};

class ChatTemplates {
 public:
  /// An empty override takes the model's own template. Throws `template_failed`.
  ChatTemplates(std::shared_ptr<ModelHandle> model, const std::string& templateOverride);
  ~ChatTemplates();

  /// `request` is the JSON of binding.ts. Throws `template_failed` with the library's message.
  ChatPrompt apply(const std::string& request) const;
  /// OpenAI message as JSON. Throws `template_failed` when a whole answer does not fit the format.
  std::string parse(const std::string& text, bool partial, const std::string& parser);

 private:
  struct Free {
    void operator()(common_chat_templates* templates) const;
  };
  std::shared_ptr<ModelHandle> model_;
  std::unique_ptr<common_chat_templates, Free> templates_;

  /// Parsers of the answers under way, newest first: a stream asks for its own at every step, and reading one back from
  /// its text costs more than the parsing.
  struct SavedParsers;
  std::unique_ptr<SavedParsers> parsers_;
};

}  // namespace steerage
