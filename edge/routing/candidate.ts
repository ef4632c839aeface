import type { Pace } from "./pace.ts";
import { DEFAULT_POLICY, type PoolPolicy } from "./policy.ts";

/** A replica as a choice for one request: the fleet's report and what the pool's owner knows itself, side by side. */
export interface Candidate {
  readonly key: string;
  /** An endpoint never gets SAE work: nothing proves what it holds. */
  readonly kind: "host" | "endpoint";
  /** Ready and not draining. */
  readonly usable: boolean;
  readonly slots: number;
  /** Claims held by this pool's owner: exact at every moment, which is what corrects an old report. */
  readonly ownInFlight: number;
  /** By the last report, without our own; null when the replica never reports. */
  readonly othersInFlight: number | null;
  /** By the last report, less what of ours has ended since. */
  readonly waiting: number;
  /** Share of KV cells in use by the last report, plus what was sent since; null when it never reports them. */
  readonly kvUse: number | null;
  /** Work of our own claims, work tokens. */
  readonly ownWork: number;
  /** Work tokens a second at full batch, as measured. */
  readonly workPerSecond: number;
  /** 1 is warm; less just after a model was loaded, when caches are cold. */
  readonly warmth: number;
  /** Null when it never reports. */
  readonly reportAgeMs: number | null;
  /** Empty means that it takes every kind of request. */
  readonly capabilities: readonly string[];
  readonly saes: readonly string[];
  /** Declared by the operator to be beyond it. */
  readonly lacks: readonly string[];
  /** Of one request, prompt and completion together; null where nobody says. */
  readonly contextLength: number | null;
  /** What its streams lately took; null while too little is known. */
  readonly pace: Pace | null;
  readonly weight: number;
  /** Lower is tried first. */
  readonly priority: number;
  /** It asked to be left alone until then; 0 when it did not. */
  readonly busyUntilMs: number;
  /** Taken out of choice until then because attempts failed; 0 when it is not. */
  readonly ejectedUntilMs: number;
  /** One request is finding out whether it works again. */
  readonly probing: boolean;
}

/** What a request asks of a replica. */
export interface Requirement {
  readonly capability: string;
  readonly saeIds: readonly string[];
  readonly needsSomeSae: boolean;
  readonly excludedReplicas: readonly string[];
  /** Beyond its route, such as `tools` or `vision`. */
  readonly features: readonly string[];
  /** Tokens of context that it needs, rounded up to what a replica of the pool has; null: any will do. */
  readonly contextLength: number | null;
}

export interface PrefixSettings {
  readonly enabled: boolean;
  readonly maxNodes: number;
  /** Shorter matches are not worth acting on. */
  readonly minMatchBytes: number;
  /** Older entries describe a cache that may be gone. */
  readonly ttlMs: number;
  /** Share of the prompt that must match. */
  readonly matchRatio: number;
  /** A machine is too loaded for affinity when it passes the least loaded by both: requests, and factor. */
  readonly balanceAbs: number;
  readonly balanceRel: number;
}

export interface RoutingSettings {
  /** Older reports lose their say: only our own count is left. */
  readonly staleAfterMs: number;
  /** Replicas silent for longer get work only when there are no others. */
  readonly unreachableAfterMs: number;
  /** Requests waiting inside a machine at which it is saturated. */
  readonly targetWaiting: number;
  /** Requests in flight at which a machine is saturated; null: its slots. */
  readonly targetInFlight: number | null;
  /** Share of KV cells in use at which a machine is saturated. */
  readonly kvCeiling: number;
  /** A machine gets sessions only up to this factor of its fair share of requests. */
  readonly sessionLoadFactor: number;
  readonly prefix: PrefixSettings;
  readonly policy: PoolPolicy;
}

export const DEFAULT_ROUTING_SETTINGS: RoutingSettings = {
  staleAfterMs: 3_000,
  unreachableAfterMs: 10_000,
  targetWaiting: 5,
  targetInFlight: null,
  kvCeiling: 0.9,
  sessionLoadFactor: 1.25,
  prefix: {
    enabled: true,
    maxNodes: 100_000,
    minMatchBytes: 256,
    ttlMs: 600_000,
    matchRatio: 0.5,
    balanceAbs: 32,
    balanceRel: 1.1,
  },
  policy: DEFAULT_POLICY,
};

/** Of its slots, what a replica whose state nobody knows any more may be given: one in so many. */
const UNKNOWN_SHARE = 4;

/** Requests in flight that this replica is known or believed to have. */
export function inFlightOf(candidate: Candidate, settings: RoutingSettings): number {
  return candidate.ownInFlight + (isFresh(candidate, settings) ? (candidate.othersInFlight ?? 0) : 0);
}

export function isFresh(candidate: Candidate, settings: RoutingSettings): boolean {
  return candidate.reportAgeMs !== null && candidate.reportAgeMs <= settings.staleAfterMs;
}

export function isReachable(candidate: Candidate, settings: RoutingSettings): boolean {
  return candidate.reportAgeMs === null || candidate.reportAgeMs <= settings.unreachableAfterMs;
}

/** Slots that can be promised now. */
export function roomOf(candidate: Candidate, settings: RoutingSettings): number {
  const slots = isReachable(candidate, settings) ? candidate.slots : Math.ceil(candidate.slots / UNKNOWN_SHARE);
  return Math.max(0, slots - inFlightOf(candidate, settings));
}
