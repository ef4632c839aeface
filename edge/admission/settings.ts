import type { RoutingSettings } from "../routing/candidate.ts";

export interface AdmissionSettings extends RoutingSettings {
  /** Longest wait of a request whose pool has a machine. */
  readonly queueTtlMs: number;
  /** Longest wait while there is no machine at all that could serve it. */
  readonly noMachineTtlMs: number;
  /** Of one band of one pool. */
  readonly queueCapacityRequests: number;
  readonly queueCapacityBytes: number;
  /** A claim that is not renewed is released after this. */
  readonly claimTtlMs: number;
  /** Consecutive failures that take a replica out of choice; 1 makes every failure a cooldown. */
  readonly failureThreshold: number;
  readonly cooldownMs: number;
  /** Upper bound of every Retry-After that is computed here. */
  readonly maxRetryAfterSeconds: number;
}

export const DEFAULT_ADMISSION_SETTINGS: AdmissionSettings = {
  staleAfterMs: 3_000,
  unreachableAfterMs: 10_000,
  queueTtlMs: 60_000,
  noMachineTtlMs: 10_000,
  queueCapacityRequests: 1_024,
  queueCapacityBytes: 256 * 2 ** 20,
  claimTtlMs: 30_000,
  failureThreshold: 5,
  cooldownMs: 30_000,
  maxRetryAfterSeconds: 60,
};
