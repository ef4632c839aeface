import { z } from "zod";
import { FINISH_REASONS } from "./chat.ts";
import { MAX_TOP_LOGPROBS } from "./limits.ts";
import { samplingShape } from "./sampling.ts";
import { usageSchema } from "./usage.ts";

const tokenIds = z.array(z.int().min(0)).min(1);

/** POST /v1/completions. A prompt is one text or one list of token ids; lists of prompts are refused by the engine. */
export const completionRequestSchema = z.looseObject({
  ...samplingShape,
  model: z.string().min(1),
  prompt: z.union([z.string(), tokenIds, z.array(z.string()).min(1), z.array(tokenIds).min(1)]),
  logprobs: z.int().min(0).max(MAX_TOP_LOGPROBS).nullish(),
  echo: z.boolean().nullish(),
  suffix: z.string().nullish(),
  best_of: z.int().min(1).nullish(),
});
export type CompletionRequest = z.infer<typeof completionRequestSchema>;

/** One shape serves whole answers and stream chunks: a chunk's finish_reason may be null and its usage absent. */
export const textCompletionSchema = z.looseObject({
  id: z.string().startsWith("cmpl-"),
  object: z.literal("text_completion"),
  created: z.int(),
  model: z.string(),
  choices: z.array(
    z.looseObject({
      index: z.int(),
      text: z.string(),
      logprobs: z.unknown().nullable(),
      finish_reason: z.enum(FINISH_REASONS).nullable(),
    }),
  ),
  usage: usageSchema.nullish(),
});
export type TextCompletion = z.infer<typeof textCompletionSchema>;
