import { z } from "zod";

/** One entry of GET /v1/models; the members after `owned_by` are ours. */
export const modelEntrySchema = z.looseObject({
  id: z.string(),
  object: z.literal("model"),
  /** Unix seconds. */
  created: z.int(),
  owned_by: z.string(),
  context_length: z.int().nullable(),
  max_output: z.int().nullable(),
  description: z.string().nullable(),
  aliases: z.array(z.string()),
  capabilities: z.array(z.string()),
  /** Micro-dollars per 1,000 tokens. */
  pricing: z.object({ prompt_per_1k: z.int(), completion_per_1k: z.int(), cached_per_1k: z.int() }).nullable(),
  /** Named steerings for the request member `profile`. */
  profiles: z.array(z.string()).optional(),
  saes: z.array(
    z.object({
      id: z.string(),
      layer: z.int(),
      hook_point: z.string(),
      features: z.int(),
      loaded: z.boolean(),
    }),
  ),
});
export type ModelEntry = z.infer<typeof modelEntrySchema>;

export const modelListSchema = z.looseObject({ object: z.literal("list"), data: z.array(modelEntrySchema) });
