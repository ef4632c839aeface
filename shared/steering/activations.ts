import { z } from "zod";
import { MAX_SAES_PER_REQUEST } from "./steering-set.ts";

/** positions times values one answer may return, checked before generation. */
export const MAX_ACTIVATION_ENTRIES = 65_536;
export const MAX_ACTIVATION_TOP_K = 64;
export const DEFAULT_ACTIVATION_TOP_K = 16;
export const ACTIVATIONS_MEMBER = "return_sae_activations";

export const activationPositionsSchema = z.union([
  z.enum(["last", "prompt", "completion", "all"]),
  z.strictObject({ start: z.int().min(0), end: z.int().min(1) }),
]);
export type ActivationPositions = z.infer<typeof activationPositionsSchema>;

/** The request member `return_sae_activations`, in miLLM's form. */
export const activationRequestSchema = z.strictObject({
  sae_id: z.string().min(1).nullish(),
  top_k: z.int().min(1).max(MAX_ACTIVATION_TOP_K).nullish(),
  features: z.array(z.int().min(0)).min(1).max(MAX_ACTIVATION_ENTRIES).nullish(),
  positions: activationPositionsSchema.nullish(),
  read_point: z.enum(["post_steering", "pre_steering"]).nullish(),
  /** In a stream: rows come in steerage chunks as they are computed, and not again in the closing one. */
  stream: z.boolean().nullish(),
});
export type ActivationRequest = z.infer<typeof activationRequestSchema>;

/** One request, or one per SAE; the answer's `activations` has the same form. */
export const activationRequestsSchema = z.union([
  activationRequestSchema,
  z.array(activationRequestSchema).min(1).max(MAX_SAES_PER_REQUEST),
]);
export type ActivationRequests = z.infer<typeof activationRequestsSchema>;

/** The requests with the member each stands in, whatever form the caller chose. */
export function activationRequestsOf(
  requests: ActivationRequests | null | undefined,
): readonly { readonly request: ActivationRequest; readonly param: string }[] {
  if (requests === null || requests === undefined) return [];
  if (!Array.isArray(requests)) return [{ request: requests, param: ACTIVATIONS_MEMBER }];
  return requests.map((request, place) => ({ request, param: `${ACTIVATIONS_MEMBER}[${place}]` }));
}

/** `steerage.activations` of an answer. The last sampled token never went through the model and has no position. */
export const activationResultSchema = z.object({
  sae_id: z.string(),
  layer: z.int(),
  read_point: z.enum(["post_steering", "pre_steering"]),
  positions: z.array(
    z.object({
      position: z.int(),
      token_id: z.int(),
      features: z.array(z.object({ index: z.int(), value: z.number() })),
    }),
  ),
});
export type ActivationResult = z.infer<typeof activationResultSchema>;
