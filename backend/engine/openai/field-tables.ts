import type { FieldRule, FieldTable } from "./field-policy.ts";

const refused: FieldRule = () => false;
const emptyList: FieldRule = (value) => Array.isArray(value) && value.length === 0;
const only =
  (...neutral: readonly unknown[]): FieldRule =>
  (value) =>
    neutral.includes(value);

/** Members of OpenAI and of common extensions that have no influence on the tokens of an answer. */
const HARMLESS: FieldTable = {
  user: "ignored",
  store: "ignored",
  metadata: "ignored",
  service_tier: "ignored",
  safety_identifier: "ignored",
  prompt_cache_key: "ignored",
  prompt_cache_retention: "ignored",
};

const SHARED: FieldTable = {
  ...HARMLESS,
  model: "honoured",
  stream: "honoured",
  stream_options: "honoured",
  temperature: "honoured",
  top_p: "honoured",
  top_k: "honoured",
  min_p: "honoured",
  max_tokens: "honoured",
  stop: "honoured",
  seed: "honoured",
  n: "honoured",
  frequency_penalty: "honoured",
  presence_penalty: "honoured",
  repetition_penalty: "honoured",
  logit_bias: "honoured",
  allowed_token_ids: "honoured",
  grammar: "honoured",
  logprobs: "honoured",
  ignore_eos: "honoured",
  steering: "honoured",
  return_sae_activations: "honoured",
  profile: "honoured",
  steering_intensity: "honoured",
  best_of: only(1),
  use_beam_search: only(false),
  min_tokens: only(0),
  typical_p: only(1),
  length_penalty: only(1),
  mirostat: only(0),
  repeat_penalty: only(1),
  guided_json: refused,
  guided_regex: refused,
  guided_choice: refused,
  guided_grammar: refused,
  structured_outputs: refused,
  bad_words: emptyList,
  stop_token_ids: emptyList,
  logits_processors: emptyList,
  extra_messages: emptyList,
  prompt_logprobs: refused,
  return_tokens_as_token_ids: only(false),
  truncate_prompt_tokens: refused,
  lora_request: refused,
};

export const CHAT_FIELDS: FieldTable = {
  ...SHARED,
  messages: "honoured",
  max_completion_tokens: "honoured",
  top_logprobs: "honoured",
  response_format: "honoured",
  chat_template_kwargs: "honoured",
  tools: "honoured",
  tool_choice: "honoured",
  parallel_tool_calls: "honoured",
  functions: emptyList,
  function_call: only("none", "auto"),
  modalities: (value) => Array.isArray(value) && value.every((one) => one === "text"),
  audio: refused,
  prediction: "ignored",
  reasoning_effort: only("none"),
  verbosity: only("medium"),
  web_search_options: refused,
  chat_template: refused,
  add_generation_prompt: only(true),
  continue_final_message: refused,
  documents: emptyList,
  echo: only(false),
};

export const COMPLETION_FIELDS: FieldTable = {
  ...SHARED,
  prompt: "honoured",
  echo: "honoured",
  suffix: only(""),
  add_special_tokens: only(true),
  response_format: (value) => JSON.stringify(value) === '{"type":"text"}',
  max_completion_tokens: refused,
  tools: emptyList,
};

export const EMBEDDING_FIELDS: FieldTable = {
  ...HARMLESS,
  model: "honoured",
  input: "honoured",
  encoding_format: "honoured",
  dimensions: "honoured",
  steering: refused,
  return_sae_activations: refused,
  profile: refused,
  steering_intensity: refused,
  pooling: "honoured",
  // Vectors have unit length; a wish for exactly that changes nothing.
  normalize: only(true),
  task: refused,
  instruction: refused,
  truncate_prompt_tokens: refused,
};
