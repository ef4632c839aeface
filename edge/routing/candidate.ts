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
  readonly waiting: number;
  /** Null when it never reports. */
  readonly reportAgeMs: number | null;
  /** Empty means that it takes every kind of request. */
  readonly capabilities: readonly string[];
  readonly saes: readonly string[];
  readonly weight: number;
  /** Lower is tried first. */
  readonly priority: number;
  /** It asked to be left alone until then; 0 when it did not. */
  readonly busyUntilMs: number;
  /** Taken out of choice until then because attempts failed; 0 when it is not. */
  readonly ejectedUntilMs: number;
}

/** What a request asks of a replica. */
export interface Requirement {
  readonly capability: string;
  readonly saeIds: readonly string[];
  readonly needsSomeSae: boolean;
  readonly excludedReplicas: readonly string[];
}

export interface RoutingSettings {
  /** Older reports lose their say: only our own count is left. */
  readonly staleAfterMs: number;
  /** Replicas silent for longer get work only when there are no others. */
  readonly unreachableAfterMs: number;
}

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
  return Math.max(0, candidate.slots - inFlightOf(candidate, settings));
}
