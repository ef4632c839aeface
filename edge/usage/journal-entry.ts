import { z } from "zod";
import { endedRequestSchema, hourCounterSchema } from "../../shared/protocol/report.ts";

const count = z.int().min(0);
const price = z.object({ promptPer1k: z.int(), cachedPer1k: z.int(), completionPer1k: z.int() });
const outcome = z.enum(["completed", "cancelled", "failed", "shed", "expired"]);
const exactness = z.enum(["exact", "counted", "estimated"]);

const openedSchema = z.object({
  requestId: z.string(),
  clientRequestId: z.string().nullable(),
  atMs: z.number(),
  account: z.string(),
  project: z.string(),
  keyId: z.string(),
  model: z.string(),
  band: z.string(),
  price,
  priceVersion: z.int(),
});

const startedSchema = z.object({
  requestId: z.string(),
  attempt: z.int(),
  backend: z.string(),
  replica: z.string(),
  epoch: z.int().nullable(),
  served: z.object({ model: z.string(), price, priceVersion: z.int() }).optional(),
});

/** The part of a request that its edge notes in the database, so that another can settle it. */
export const openRequestSchema = z.object({ opened: openedSchema, attempts: z.array(startedSchema).readonly() });

const endedAttemptSchema = z.object({
  requestId: z.string(),
  attempt: z.int(),
  counts: z.object({ promptTokens: count, cachedTokens: count, completionTokens: count }),
  exactness,
  unbilledReason: z.enum(["retry", "hedge", "failed_before_first_token", "draft"]).nullable(),
  awaitReport: z.boolean(),
});

const settledSchema = z.object({
  requestId: z.string(),
  outcome,
  attempts: z.array(endedAttemptSchema).readonly(),
  backend: z.string().nullable(),
  steeringHash: z.string().nullable(),
  queueMs: z.number().nullable(),
  ttftMs: z.number().nullable(),
  tpotMs: z.number().nullable(),
  totalMs: z.number(),
});

/**
 * A line of the journal. A report is one line, ended requests and counters together, so that a reader sees both sides
 * of the proof or neither. Every line may be read twice, and a request's lines may be repeated in a newer segment.
 */
export const journalEntrySchema = z.discriminatedUnion("kind", [
  z.object({ kind: z.literal("open"), request: openedSchema }),
  z.object({ kind: z.literal("attempt"), attempt: startedSchema }),
  z.object({ kind: z.literal("settle"), settled: settledSchema, atMs: z.number() }),
  /** The machine's report is not waited for any longer. */
  z.object({ kind: z.literal("waited"), requestId: z.string(), atMs: z.number() }),
  /** The database takes others, but not the rows of this one. */
  z.object({ kind: z.literal("refused"), requestId: z.string(), reason: z.string(), atMs: z.number() }),
  z.object({
    kind: z.literal("report"),
    host: z.string(),
    edge: z.string(),
    ended: z.array(endedRequestSchema).readonly(),
    counters: z.array(hourCounterSchema).readonly(),
    atMs: z.number(),
  }),
]);
export type JournalEntry = z.infer<typeof journalEntrySchema>;
