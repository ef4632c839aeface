import { Ajv, type ValidateFunction } from "ajv";

/**
 * OpenAI's answers as JSON Schemas, from its public description of the API: what a client may rely on. Members beyond
 * these are allowed there too.
 */
const count = { type: "integer", minimum: 0 };
const text = { type: "string", minLength: 1 };
const finishReason = ["stop", "length", "tool_calls", "content_filter", "function_call"];

const usage = {
  type: "object",
  required: ["prompt_tokens", "completion_tokens", "total_tokens"],
  properties: { prompt_tokens: count, completion_tokens: count, total_tokens: count },
};

const toolCalls = (whole: boolean) => ({
  type: "array",
  items: {
    type: "object",
    required: whole ? ["id", "type", "function"] : ["index"],
    properties: {
      index: count,
      id: text,
      type: { const: "function" },
      function: {
        type: "object",
        required: whole ? ["name", "arguments"] : [],
        properties: { name: { type: "string" }, arguments: { type: "string" } },
      },
    },
  },
});

const answer = (object: string, choice: object, more: object = {}) => ({
  type: "object",
  required: ["id", "object", "created", "model", "choices"],
  properties: {
    id: text,
    object: { const: object },
    created: count,
    model: text,
    choices: { type: "array", items: choice },
    ...more,
  },
});

const SCHEMAS = {
  chatCompletion: answer(
    "chat.completion",
    {
      type: "object",
      required: ["index", "message", "logprobs", "finish_reason"],
      properties: {
        index: count,
        finish_reason: { enum: finishReason },
        logprobs: { type: ["object", "null"] },
        message: {
          type: "object",
          required: ["role", "content", "refusal"],
          properties: {
            role: { const: "assistant" },
            content: { type: ["string", "null"] },
            refusal: { type: ["string", "null"] },
            tool_calls: toolCalls(true),
          },
        },
      },
    },
    { usage },
  ),
  chatChunk: answer(
    "chat.completion.chunk",
    {
      type: "object",
      required: ["index", "delta", "finish_reason"],
      properties: {
        index: count,
        finish_reason: { enum: [...finishReason, null] },
        delta: {
          type: "object",
          properties: {
            role: { enum: ["developer", "system", "user", "assistant", "tool"] },
            content: { type: ["string", "null"] },
            refusal: { type: ["string", "null"] },
            tool_calls: toolCalls(false),
          },
        },
      },
    },
    { usage: { anyOf: [usage, { type: "null" }] } },
  ),
  textCompletion: answer(
    "text_completion",
    {
      type: "object",
      required: ["index", "text", "logprobs", "finish_reason"],
      properties: {
        index: count,
        text: { type: "string" },
        logprobs: { type: ["object", "null"] },
        finish_reason: { enum: ["stop", "length", "content_filter"] },
      },
    },
    { usage },
  ),
  embeddings: {
    type: "object",
    required: ["object", "model", "data", "usage"],
    properties: {
      object: { const: "list" },
      model: text,
      data: {
        type: "array",
        items: {
          type: "object",
          required: ["object", "index", "embedding"],
          properties: {
            object: { const: "embedding" },
            index: count,
            embedding: { type: "array", items: { type: "number" }, minItems: 1 },
          },
        },
      },
      usage: {
        type: "object",
        required: ["prompt_tokens", "total_tokens"],
        properties: { prompt_tokens: count, total_tokens: count },
      },
    },
  },
  modelList: {
    type: "object",
    required: ["object", "data"],
    properties: {
      object: { const: "list" },
      data: {
        type: "array",
        items: {
          type: "object",
          required: ["id", "object", "created", "owned_by"],
          properties: { id: text, object: { const: "model" }, created: count, owned_by: text },
        },
      },
    },
  },
  error: {
    type: "object",
    required: ["error"],
    additionalProperties: false,
    properties: {
      error: {
        type: "object",
        required: ["message", "type", "param", "code"],
        additionalProperties: false,
        properties: {
          message: text,
          type: text,
          param: { type: ["string", "null"] },
          code: { type: ["string", "null"] },
        },
      },
    },
  },
} as const;

export type OpenAiAnswer = keyof typeof SCHEMAS;

const ajv = new Ajv({ allErrors: true, allowUnionTypes: true });
const compiled = new Map<OpenAiAnswer, ValidateFunction>();

/** Every fault of `value` against the schema of its kind of answer; none when it keeps to it. */
export function faultsOf(kind: OpenAiAnswer, value: unknown): readonly string[] {
  let validate = compiled.get(kind);
  if (validate === undefined) {
    validate = ajv.compile(SCHEMAS[kind]);
    compiled.set(kind, validate);
  }
  if (validate(value)) return [];
  return (validate.errors ?? []).map(({ instancePath, message }) => `${instancePath} ${message ?? ""}`);
}
