import { z } from "zod";
import { MAX_EMBEDDING_INPUTS } from "./limits.ts";

const text = z.string().min(1, "an input must not be empty");
const tokenIds = z.array(z.int().min(0)).min(1, "an input must not be empty");
const tooMany = `at most ${MAX_EMBEDDING_INPUTS} inputs`;

/** POST /v1/embeddings: a text, token ids, or a list whose inputs are either. */
export const embeddingRequestSchema = z.looseObject({
  model: z.string().min(1),
  input: z.union([
    text,
    tokenIds,
    z
      .array(z.union([text, tokenIds]))
      .min(1)
      .max(MAX_EMBEDDING_INPUTS, tooMany),
  ]),
  encoding_format: z.enum(["float", "base64"]).nullish(),
  dimensions: z.int().min(1).nullish(),
  user: z.string().nullish(),
});
export type EmbeddingRequest = z.infer<typeof embeddingRequestSchema>;

export const embeddingResponseSchema = z.looseObject({
  object: z.literal("list"),
  model: z.string(),
  data: z.array(
    z.looseObject({
      object: z.literal("embedding"),
      index: z.int(),
      /** Little-endian f32 in base64 when that was asked for. */
      embedding: z.union([z.array(z.number()), z.string()]),
    }),
  ),
  usage: z.looseObject({ prompt_tokens: z.int(), total_tokens: z.int() }),
});
export type EmbeddingResponse = z.infer<typeof embeddingResponseSchema>;
