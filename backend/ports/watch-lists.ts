import { z } from "zod";

/**
 * Watch lists of a running engine, on its socket: GET lists them, PUT /{id} sets one, GET /{id} has its statistics,
 * DELETE /{id} ends it, GET /{id}/events has what crossed its threshold, also as an event stream.
 */
export const ENGINE_WATCH_LISTS_PATH = "/engine/v1/watch-lists";

/** Of one model. */
export const MAX_WATCH_LISTS = 16;
/** Of one watch list. */
export const MAX_WATCHED_FEATURES = 256;
/** On either side of a token that crossed a threshold. */
export const MAX_CONTEXT_TOKENS = 64;

export const watchListIdSchema = z
  .string()
  .regex(/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/, "must be 1 to 64 letters, digits, dots, underscores and hyphens");

const feature = z.int().min(0);
const readPoint = z.enum(["pre_steering", "post_steering"]);
const contextTokens = z.int().min(0).max(MAX_CONTEXT_TOKENS);

/** What operators send. */
export const watchListBodySchema = z.strictObject({
  /** May be left out where one SAE is attached. */
  sae_id: z.string().min(1).max(256).nullish(),
  features: z.array(feature).min(1).max(MAX_WATCHED_FEATURES),
  /** Activations above it are events; none are without it. */
  threshold: z.number().min(0).nullish(),
  context_tokens: contextTokens.nullish(),
  read_point: readPoint.nullish(),
});

/** A watch list with everything settled, as hosts keep it and engines begin with it. */
export const watchListSchema = z.object({
  id: watchListIdSchema,
  sae_id: z.string(),
  features: z.array(feature),
  threshold: z.number().nullable(),
  context_tokens: contextTokens,
  read_point: readPoint,
});
export type WatchListDefinition = z.infer<typeof watchListSchema>;

/** What an engine is told about monitoring as a whole. */
export const monitoringOptionsSchema = z.object({
  /** Whether events carry the callers' text. */
  context_text: z.boolean(),
  /** Where a watch list does not say. */
  context_tokens: contextTokens,
  /** Events kept for each watch list. */
  history: z.int().min(1),
  /** Of one watch list in one request. */
  max_events_per_request: z.int().min(1),
});
export type MonitoringOptions = z.infer<typeof monitoringOptionsSchema>;

export const DEFAULT_MONITORING: MonitoringOptions = {
  context_text: false,
  context_tokens: 16,
  history: 1_000,
  max_events_per_request: 20,
};
