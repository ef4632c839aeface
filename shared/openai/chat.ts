import { z } from "zod";
import { MAX_TOP_LOGPROBS } from "./limits.ts";
import { samplingShape } from "./sampling.ts";
import { usageSchema } from "./usage.ts";

const textPart = z.looseObject({ type: z.literal("text"), text: z.string() });
/** A part of another type is kept, so that its refusal can name it by place. */
const otherPart = z.looseObject({ type: z.string() });
const content = z.union([z.string(), z.array(z.union([textPart, otherPart]))]);

export const toolCallSchema = z.looseObject({
  id: z.string(),
  type: z.literal("function"),
  function: z.looseObject({ name: z.string(), arguments: z.string() }),
});

export const CHAT_ROLES = ["system", "developer", "user", "assistant", "tool", "function"] as const;

export const chatMessageSchema = z.looseObject({
  role: z.enum(CHAT_ROLES),
  content: content.nullish(),
  name: z.string().nullish(),
  tool_calls: z.array(toolCallSchema).nullish(),
  tool_call_id: z.string().nullish(),
  reasoning_content: z.string().nullish(),
});
export type ChatMessage = z.infer<typeof chatMessageSchema>;

/** POST /v1/chat/completions. Unknown members pass: the field policy of the engine decides about them. */
export const chatRequestSchema = z.looseObject({
  ...samplingShape,
  model: z.string().min(1),
  messages: z.array(chatMessageSchema).min(1),
  max_completion_tokens: z.int().min(1).nullish(),
  logprobs: z.boolean().nullish(),
  top_logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
});
export type ChatRequest = z.infer<typeof chatRequestSchema>;

export const FINISH_REASONS = ["stop", "length", "tool_calls", "content_filter", "function_call"] as const;
export type OpenAiFinishReason = (typeof FINISH_REASONS)[number];

export const chatCompletionSchema = z.looseObject({
  id: z.string().startsWith("chatcmpl-"),
  object: z.literal("chat.completion"),
  created: z.int(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      message: z.looseObject({ role: z.literal("assistant"), content: z.string().nullable() }),
      logprobs: z.unknown().nullable(),
      finish_reason: z.enum(FINISH_REASONS),
    }),
  ),
  usage: usageSchema,
});
export type ChatCompletion = z.infer<typeof chatCompletionSchema>;

export const chatChunkSchema = z.looseObject({
  id: z.string().startsWith("chatcmpl-"),
  object: z.literal("chat.completion.chunk"),
  created: z.int(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      delta: z.looseObject({ role: z.literal("assistant").optional(), content: z.string().nullish() }),
      finish_reason: z.enum(FINISH_REASONS).nullable(),
    }),
  ),
  usage: usageSchema.nullish(),
});
export type ChatChunk = z.infer<typeof chatChunkSchema>;
