import { z } from "zod";

/** An attempt that an edge waits for, as it began it. */
export const askedAttemptSchema = z.object({
  request_id: z.string(),
  attempt: z.int(),
  replica: z.string(),
  epoch: z.int(),
});
export type AskedAttempt = z.infer<typeof askedAttemptSchema>;

/** An Ed25519 public key with which an edge signs requests (RFC 8037). */
export const edgeKeySchema = z.object({
  kty: z.literal("OKP"),
  crv: z.literal("Ed25519"),
  x: z.string(),
  kid: z.string(),
});
export type EdgeKey = z.infer<typeof edgeKeySchema>;

export const answerSchema = z.object({
  protocol: z.int(),
  /** The edge's own name: `iss` of its tokens. */
  edge: z.string(),
  ack_seq: z.int(),
  /** Ended requests that are safe in this edge's journal: the host may forget them. */
  ack_ended: z.array(z.object({ request_id: z.string(), attempt: z.int() })),
  /**
   * Attempts whose account this edge still waits for. The host reports zeros for one that never reached it, or that it
   * turned away, and lets it in no more.
   */
  ask_ended: z.array(askedAttemptSchema).default([]),
  /** Unix milliseconds; hosts correct their clock by it. */
  edge_time: z.int(),
  /** All keys to accept from now on; two while one replaces the other. */
  keys: z.array(edgeKeySchema),
  /** Edges that have died and for whose requests this one answers: their ended requests and counters are wanted too. */
  stands_in_for: z.array(z.string()).optional(),
  report_every_ms: z.int().min(100),
  desired: z
    .object({ lease_number: z.int(), generation: z.int(), replicas: z.array(z.looseObject({ model: z.string() })) })
    .nullable(),
});
export type Answer = z.infer<typeof answerSchema>;
