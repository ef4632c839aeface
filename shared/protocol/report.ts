import { z } from "zod";

const count = z.int().min(0);

/** Far above what any attempt computes, and low enough that no sum of costs leaves what the ledger can hold. */
const MOST_TOKENS_OF_ATTEMPT = 1_000_000_000;
const tokens = count.max(MOST_TOKENS_OF_ATTEMPT);
/** An hour of a thousand slots at a thousand tokens a second is 3.6e9. */
const MOST_IN_AN_HOUR = 1_000_000_000_000;
const inAnHour = count.max(MOST_IN_AN_HOUR);

export const REPLICA_STATES = ["starting", "ready", "draining", "failed", "stopped"] as const;
export const replicaStateSchema = z.enum(REPLICA_STATES);
export type ReplicaState = z.infer<typeof replicaStateSchema>;

/** How well an SAE explains the residual rows of the model file that it is served with, measured on one text. */
export const fidelitySchema = z.object({
  /** 1 - Σ‖x - x̂‖² / Σ‖x - mean‖²: 1 is perfect, 0 no better than the mean, less is worse. Null: rows without variance. */
  explained_variance: z.number().nullable(),
  /** Active features per row, on average. */
  l0: z.number().min(0),
  /** Features that were active in no row. */
  dead: count,
  /** Rows it was measured on. */
  tokens: count,
});
export type Fidelity = z.infer<typeof fidelitySchema>;

/** An SAE that a replica holds. `digest` is SHA-256 over the tensors, in hex. */
export const attachedSaeSchema = z.object({
  id: z.string().min(1),
  digest: z.string(),
  layer: z.int().min(0),
  hook_point: z.string(),
  d_sae: z.int().min(1),
  /** Null or left out: not measured. */
  fidelity: fidelitySchema.nullish(),
});
export type AttachedSae = z.infer<typeof attachedSaeSchema>;

/** A named steering that a replica can apply, and the SAEs it needs. */
export const reportedProfileSchema = z.object({ name: z.string().min(1), saes: z.array(z.string().min(1)).min(1) });
export type ReportedProfile = z.infer<typeof reportedProfileSchema>;

/** Since an engine's start. What answers did not take, and what the draft model computed, is billed to nobody. */
export const speculationCountsSchema = z.object({
  /** Guesses that the model itself verified. */
  drafted: count,
  /** Those of them that answers took. */
  accepted: count,
  /** Tokens that a draft model computed for guessing. */
  draft_model: count,
});
export type SpeculationCounts = z.infer<typeof speculationCountsSchema>;

export const replicaReportSchema = z.object({
  /** Unique on its host. */
  id: z.string().min(1),
  model: z.string().min(1),
  engine: z.string().min(1),
  state: replicaStateSchema,
  /** Why it failed, or which of its SAEs it does not serve, for operators; null otherwise. */
  reason: z.string().nullish(),
  slots: count,
  in_flight: count,
  /** Requests in flight by the edge that sent them (`iss` of its tokens). */
  in_flight_by_edge: z.record(z.string(), count),
  waiting: count,
  free_kv_cells: count,
  total_kv_cells: count,
  tokens_per_second: z.number().min(0),
  prefill_tokens_per_second: z.number().min(0),
  /** Where it guesses tokens. */
  speculation: speculationCountsSchema.optional(),
  context_length: count,
  capabilities: z.array(z.string()),
  saes: z.array(attachedSaeSchema),
  /** Those whose SAEs are all attached. */
  profiles: z.array(reportedProfileSchema).optional(),
});
export type ReplicaReport = z.infer<typeof replicaReportSchema>;

export const ATTEMPT_OUTCOMES = ["completed", "cancelled", "failed"] as const;

/** Repeated in every report until the edge acknowledges it. Counts are what the machine really computed. */
export const endedRequestSchema = z.object({
  request_id: z.string().min(1),
  attempt: z.int().min(1),
  /** `iss` of the edge that sent it. */
  edge: z.string(),
  replica: z.string(),
  /** Start of the host process that computed it, which an old entry outlives. */
  epoch: z.int(),
  /** Unix milliseconds by the host's clock. */
  ended_at: z.int(),
  computed_prompt: tokens,
  cached_prompt: tokens,
  computed_completion: tokens,
  outcome: z.enum(ATTEMPT_OUTCOMES),
  /** `exact` from the engine's own account; `counted` when the engine died and the host counted what passed by. */
  exactness: z.enum(["exact", "counted"]),
});
export type EndedRequest = z.infer<typeof endedRequestSchema>;

/** What a host computed for ended requests of one edge within one hour: the other side of the ledger's proof. */
export const hourCounterSchema = z.object({
  /** `iss` of the edge it counts for; the edge that is told, where it is left out. */
  edge: z.string().optional(),
  epoch: z.int(),
  /** Unix milliseconds of the hour's start, by `ended_at`. */
  hour: z.int(),
  requests: inAnHour,
  computed_prompt: inAnHour,
  cached_prompt: inAnHour,
  computed_completion: inAnHour,
});
export type HourCounter = z.infer<typeof hourCounterSchema>;

/** POST {agent_listen}/agent/v1/reports, bearer enrolment token. */
export const reportSchema = z.object({
  protocol: z.int(),
  host: z.string().min(1),
  /** Unix milliseconds at which the host process started; with `seq` it orders reports. */
  epoch: z.int(),
  seq: z.int().min(0),
  /** Unix milliseconds by the host's clock. */
  at: z.int(),
  /** Origin at which the edge reaches this host, such as `https://gpu-1.example:8090`. */
  url: z.url({ protocol: /^https?$/ }),
  labels: z.record(z.string(), z.string()),
  replicas: z.array(replicaReportSchema),
  ended: z.array(endedRequestSchema),
  counters: z.array(hourCounterSchema),
  gpus: z.array(z.looseObject({ name: z.string(), memory_bytes: count, free_bytes: count })),
  memory: z.object({ total_bytes: count, free_bytes: count }),
  disk: z.object({ total_bytes: count, free_bytes: count }).nullable(),
  /** Model files present, by source. */
  weights: z.array(z.string()),
  draining: z.boolean(),
  /** Answers that were not proven and of which nothing was used, since the host process started. */
  answers_refused: count.optional(),
});
export type Report = z.infer<typeof reportSchema>;
