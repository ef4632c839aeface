import { z } from "zod";
import {
  ATTEMPT_OUTCOMES,
  attachedSaeSchema,
  reportedProfileSchema,
  speculationCountsSchema,
} from "../../shared/protocol/report.ts";

/** Where an engine process tells its host about itself: NDJSON, one event a line, on the engine's own socket. */
export const ENGINE_EVENTS_PATH = "/engine/v1/events";

/**
 * SAEs of a running engine, on the same socket: POST {id, path, layer?} attaches or swaps one, DELETE /{id} detaches
 * it. Requests that run keep what they began with; a new `ready` event tells the list.
 */
export const ENGINE_SAES_PATH = "/engine/v1/saes";

/** What operators ask of a model's tokenizer and template, under llama-server's names. Nothing is generated. */
export const ENGINE_TEXT_PATHS = ["/tokenize", "/detokenize", "/apply-template"] as const;
export type EngineTextPath = (typeof ENGINE_TEXT_PATHS)[number];

const count = z.int().min(0);

/** First line of every connection, and again when something of it changes. */
const readySchema = z.object({
  type: z.literal("ready"),
  model: z.string(),
  engine: z.string(),
  slots: z.int().min(1),
  context_length: count,
  max_output: count.nullable(),
  capabilities: z.array(z.string()),
  saes: z.array(attachedSaeSchema),
  /** Named steerings whose SAEs are all attached. */
  profiles: z.array(reportedProfileSchema).optional(),
  /** Configured SAEs that are not served, each with the reason. */
  refused_saes: z.array(z.object({ id: z.string(), reason: z.string() })).optional(),
});

/** On every change, at most every 100 ms, and once a second. */
const loadSchema = z.object({
  type: z.literal("load"),
  in_flight: count,
  waiting: count,
  free_kv_cells: count,
  total_kv_cells: count,
  tokens_per_second: z.number().min(0),
  prefill_tokens_per_second: z.number().min(0),
  /** Where it guesses tokens. */
  speculation: speculationCountsSchema.optional(),
  /** What runs, so that a host whose engine dies knows what had been computed. */
  running: z.array(
    z.object({
      request_id: z.string(),
      attempt: z.int(),
      computed_prompt: count,
      cached_prompt: count,
      computed_completion: count,
    }),
  ),
});

/** Once per request that named an id, completed, cancelled or failed: the machine's exact account of it. */
const endedSchema = z.object({
  type: z.literal("ended"),
  request_id: z.string(),
  attempt: z.int(),
  computed_prompt: count,
  cached_prompt: count,
  computed_completion: count,
  outcome: z.enum(ATTEMPT_OUTCOMES),
});

export const engineEventSchema = z.discriminatedUnion("type", [readySchema, loadSchema, endedSchema]);
export type EngineEvent = z.infer<typeof engineEventSchema>;
export type EngineReady = z.infer<typeof readySchema>;
export type EngineLoad = z.infer<typeof loadSchema>;
export type EngineEnded = z.infer<typeof endedSchema>;
