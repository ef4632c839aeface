#include "chat_templates.h"

#include <algorithm>
#include <exception>
#include <list>

#include "chat.h"
#include "json.h"
#include "native_error.h"

namespace steerage {

namespace {

common_chat_tool_choice readToolChoice(const common_json& request) {
  if (!request.contains("tool_choice") || request.at("tool_choice").is_null()) return COMMON_CHAT_TOOL_CHOICE_AUTO;
  const common_json& choice = request.at("tool_choice");
  if (choice.is_string()) return common_chat_tool_choice_parse_oaicompat(choice.get<std::string>());
  return COMMON_CHAT_TOOL_CHOICE_REQUIRED;
}

/// {"type":"function","function":{"name":N}} leaves only the tool N to choose from.
void keepNamedTool(const common_json& request, std::vector<common_chat_tool>& tools) {
  if (!request.contains("tool_choice") || !request.at("tool_choice").is_object()) return;
  const std::string name = request.at("tool_choice").at("function").at("name").get<std::string>();
  for (const common_chat_tool& tool : tools) {
    if (tool.name != name) continue;
    tools = std::vector<common_chat_tool>{tool};
    return;
  }
  throw std::invalid_argument("tool_choice names a tool that is not in tools: " + name);
}

common_chat_templates_inputs readInputs(const common_json& request) {
  common_chat_templates_inputs inputs;
  inputs.messages = common_chat_msgs_parse_oaicompat(request.at("messages"));
  if (request.contains("tools") && !request.at("tools").is_null()) {
    inputs.tools = common_chat_tools_parse_oaicompat(request.at("tools"));
    keepNamedTool(request, inputs.tools);
    inputs.tool_choice = readToolChoice(request);
  }
  if (request.contains("json_schema") && !request.at("json_schema").is_null()) {
    inputs.json_schema = request.at("json_schema").dump();
  }
  inputs.parallel_tool_calls = request.value("parallel_tool_calls", false);
  inputs.add_generation_prompt = request.value("add_generation_prompt", true);
  inputs.use_jinja = true;
  inputs.force_pure_content = request.value("plain", false);
  inputs.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  if (request.contains("chat_template_kwargs") && !request.at("chat_template_kwargs").is_null()) {
    for (const auto& item : request.at("chat_template_kwargs").items()) {
      inputs.chat_template_kwargs[item.key()] = item.value().dump();
    }
    const auto thinking = inputs.chat_template_kwargs.find("enable_thinking");
    if (thinking != inputs.chat_template_kwargs.end()) inputs.enable_thinking = thinking->second == "true";
  }
  return inputs;
}

const char* triggerType(common_grammar_trigger_type type) {
  switch (type) {
    case COMMON_GRAMMAR_TRIGGER_TYPE_TOKEN:
    case COMMON_GRAMMAR_TRIGGER_TYPE_WORD: return "word";
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN: return "pattern";
    case COMMON_GRAMMAR_TRIGGER_TYPE_PATTERN_FULL: return "pattern_full";
  }
  return "word";
}

/// The list also carries what the template has already written of the answer ("prefill"): a grammar that is not lazy
/// must read that first. SamplerChain reads it back.
std::string writeTriggers(const common_chat_params& params) {
  common_json list = common_json::array();
  for (const common_grammar_trigger& trigger : params.grammar_triggers) {
    common_json entry = common_json::object();
    entry["type"] = triggerType(trigger.type);
    entry["value"] = trigger.value;
    list.push_back(entry);
  }
  if (!params.grammar_lazy && !params.generation_prompt.empty()) {
    common_json entry = common_json::object();
    entry["type"] = "prefill";
    entry["value"] = params.generation_prompt;
    list.push_back(entry);
  }
  return list.dump_safe();
}

std::string writeParser(const common_chat_params& params, bool hasTools) {
  common_json parser = common_json::object();
  parser["format"] = static_cast<int>(params.format);
  parser["generation_prompt"] = params.generation_prompt;
  parser["arena"] = params.parser;
  parser["tools"] = hasTools;
  return parser.dump_safe();
}

common_chat_parser_params readParser(const std::string& text) {
  const common_json saved = common_json::parse(text);
  common_chat_parser_params params;
  params.format = static_cast<common_chat_format>(saved.at("format").get<int>());
  params.reasoning_format = COMMON_REASONING_FORMAT_AUTO;
  params.generation_prompt = saved.at("generation_prompt").get<std::string>();
  params.parse_tool_calls = saved.at("tools").get<bool>();
  const std::string arena = saved.at("arena").get<std::string>();
  if (!arena.empty()) params.parser.load(arena);
  return params;
}

}  // namespace

void ChatTemplates::Free::operator()(common_chat_templates* templates) const { common_chat_templates_free(templates); }

struct ChatTemplates::SavedParsers {
  static constexpr size_t kMost = 64;
  std::list<std::pair<std::string, common_chat_parser_params>> newestFirst;

  const common_chat_parser_params& at(const std::string& parser) {
    const auto found = std::find_if(newestFirst.begin(), newestFirst.end(),
                                    [&parser](const auto& saved) { return saved.first == parser; });
    if (found != newestFirst.end()) {
      newestFirst.splice(newestFirst.begin(), newestFirst, found);
    } else {
      newestFirst.emplace_front(parser, readParser(parser));
      if (newestFirst.size() > kMost) newestFirst.pop_back();
    }
    return newestFirst.front().second;
  }
};

ChatTemplates::ChatTemplates(std::shared_ptr<ModelHandle> model, const std::string& templateOverride)
    : model_(std::move(model)), parsers_(std::make_unique<SavedParsers>()) {
  try {
    templates_.reset(common_chat_templates_init(model_->model(), templateOverride).release());
  } catch (const std::exception& error) {
    throw NativeError(ErrorCode::TemplateFailed, error.what());
  }
}

ChatTemplates::~ChatTemplates() = default;

ChatPrompt ChatTemplates::apply(const std::string& request) const {
  try {
    const common_chat_templates_inputs inputs = readInputs(common_json::parse(request));
    const common_chat_params params = common_chat_templates_apply(templates_.get(), inputs);
    ChatPrompt applied;
    applied.prompt = params.prompt;
    applied.grammar = params.grammar;
    applied.grammarLazy = params.grammar_lazy;
    if (!params.grammar.empty()) applied.grammarTriggers = writeTriggers(params);
    applied.preservedTokens = params.preserved_tokens;
    applied.additionalStops = params.additional_stops;
    applied.supportsThinking = params.supports_thinking;
    applied.parser = writeParser(params, !inputs.tools.empty());
    return applied;
  } catch (const std::exception& error) {
    throw NativeError(ErrorCode::TemplateFailed, error.what());
  }
}

std::string ChatTemplates::parse(const std::string& text, bool partial, const std::string& parser) {
  try {
    return common_chat_parse(text, partial, parsers_->at(parser)).to_json_oaicompat().dump_safe();
  } catch (const std::exception& error) {
    throw NativeError(ErrorCode::TemplateFailed, error.what());
  }
}

}  // namespace steerage
