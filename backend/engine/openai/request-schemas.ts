import { z } from "zod";
import { chatRequestSchema } from "../../../shared/openai/chat.ts";
import { completionRequestSchema } from "../../../shared/openai/completions.ts";
import { embeddingRequestSchema } from "../../../shared/openai/embeddings.ts";
import { toolShape } from "../../../shared/openai/tools.ts";
import { activationRequestsSchema } from "../../../shared/steering/activations.ts";
import { intensitySchema, profileNameSchema } from "../../../shared/steering/profile.ts";
import { steeringSchema } from "../../../shared/steering/steering-set.ts";
import { POOLINGS } from "../embedding/pooling.ts";

const MAX_BIASED_TOKENS = 1_024;
const MAX_SCHEMA_CHARACTERS = 65_536;

/** What the engine reads beyond OpenAI's own members. */
const engineShape = {
  steering: steeringSchema.nullish(),
  profile: profileNameSchema.nullish(),
  steering_intensity: intensitySchema.nullish(),
  return_sae_activations: activationRequestsSchema.nullish(),
  // The native core takes no less: what it divides by must not vanish in single precision.
  repetition_penalty: z.number().min(1e-6).max(2).nullish(),
  logit_bias: z
    .record(z.string().regex(/^\d{1,9}$/, "a token id is expected"), z.number().min(-100).max(100))
    .refine((bias) => Object.keys(bias).length <= MAX_BIASED_TOKENS, `at most ${MAX_BIASED_TOKENS} tokens`)
    .nullish(),
  /** GBNF that the answer keeps to. */
  grammar: z.string().min(1).max(MAX_SCHEMA_CHARACTERS).nullish(),
  /** The answer is drawn from these tokens alone, and log-probabilities are over them: scoring in one pass. */
  allowed_token_ids: z.array(z.int().min(0)).min(1).max(MAX_BIASED_TOKENS).nullish(),
};

const jsonSchema = z
  .record(z.string(), z.unknown())
  .refine((schema) => JSON.stringify(schema).length <= MAX_SCHEMA_CHARACTERS, "the schema is too large");

export const responseFormatSchema = z.discriminatedUnion("type", [
  z.looseObject({ type: z.literal("text") }),
  z.looseObject({ type: z.literal("json_object") }),
  z.looseObject({
    type: z.literal("json_schema"),
    json_schema: z.looseObject({
      name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "1 to 64 letters, digits, _ and -"),
      schema: jsonSchema.nullish(),
      strict: z.boolean().nullish(),
      description: z.string().nullish(),
    }),
  }),
]);
export type ResponseFormat = z.infer<typeof responseFormatSchema>;

export const engineChatSchema = chatRequestSchema.extend({
  ...engineShape,
  response_format: responseFormatSchema.nullish(),
  ...toolShape,
  chat_template_kwargs: z.record(z.string(), z.unknown()).nullish(),
});
export type EngineChatRequest = z.infer<typeof engineChatSchema>;

export const engineEmbeddingSchema = embeddingRequestSchema.extend({ pooling: z.enum(POOLINGS).nullish() });

export const engineCompletionSchema = completionRequestSchema.extend(engineShape);
export type EngineCompletionRequest = z.infer<typeof engineCompletionSchema>;
