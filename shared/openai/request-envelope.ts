import { z } from "zod";
import { activationRequestsSchema } from "../steering/activations.ts";
import { intensitySchema, profileNameSchema } from "../steering/profile.ts";
import { steeringSchema } from "../steering/steering-set.ts";

/** The three routes that reach an engine. */
export const INFERENCE_ROUTES = ["/v1/chat/completions", "/v1/completions", "/v1/embeddings"] as const;
export type InferenceRoute = (typeof INFERENCE_ROUTES)[number];

const limit = z.int().min(1).nullish();

/**
 * What the edge must know of a request before it can admit and route it. Everything else is the engine's to judge,
 * from the caller's own bytes.
 */
export const requestEnvelopeSchema = z.looseObject({
  model: z.string().min(1),
  stream: z.boolean().nullish(),
  stream_options: z.looseObject({ include_usage: z.boolean().nullish() }).nullish(),
  max_tokens: limit,
  max_completion_tokens: limit,
  n: z.int().min(1).max(128).nullish(),
  steering: steeringSchema.nullish(),
  profile: profileNameSchema.nullish(),
  steering_intensity: intensitySchema.nullish(),
  return_sae_activations: activationRequestsSchema.nullish(),
});
export type RequestEnvelope = z.infer<typeof requestEnvelopeSchema>;
