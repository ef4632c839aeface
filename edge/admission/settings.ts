import { DEFAULT_ROUTING_SETTINGS, type RoutingSettings } from "../routing/candidate.ts";
import type { PoolPolicy } from "../routing/policy.ts";

/** One class of requests. Bands are visited from the highest priority down. */
export interface BandSettings {
  readonly name: string;
  /** Higher goes first. */
  readonly priority: number;
  /** The band gets machines only while the pool's saturation is below this. */
  readonly saturationCeiling: number;
  /** Longest wait of a request whose pool has a machine. */
  readonly queueTtlMs: number;
  readonly queueCapacityRequests: number;
  readonly queueCapacityBytes: number;
  /** The promise: once its oldest request has waited this long, the band gets its trickle whatever else waits. */
  readonly maxWaitMs: number;
  /** Share of grants that an overdue band gets at least. */
  readonly trickleShare: number;
}

export interface AdmissionSettings extends RoutingSettings {
  /** Off: no queue and no ceilings, every request goes straight to the best machine. */
  readonly enabled: boolean;
  readonly bands: readonly BandSettings[];
  /** Longest wait while there is no machine at all that could serve it. */
  readonly noMachineTtlMs: number;
  /** A claim that is not renewed is released after this. */
  readonly claimTtlMs: number;
  /** Consecutive failures that take a replica out of choice; 1 makes every failure a cooldown. */
  readonly failureThreshold: number;
  /** The first cool-down; each failed probe doubles it. */
  readonly cooldownMs: number;
  /** Upper bound of every Retry-After that is computed here. */
  readonly maxRetryAfterSeconds: number;
  /** By pool, where it is not `policy`. */
  readonly policies: Readonly<Record<string, PoolPolicy>>;
}

/** For bands that nobody configured. */
export const DEFAULT_BAND: Omit<BandSettings, "name"> = {
  priority: 0,
  saturationCeiling: 1,
  queueTtlMs: 60_000,
  queueCapacityRequests: 1_024,
  queueCapacityBytes: 256 * 2 ** 20,
  maxWaitMs: 30_000,
  trickleShare: 0.1,
};

export const DEFAULT_ADMISSION_SETTINGS: AdmissionSettings = {
  ...DEFAULT_ROUTING_SETTINGS,
  enabled: true,
  bands: [
    { ...DEFAULT_BAND, name: "interactive", priority: 100, queueTtlMs: 30_000, maxWaitMs: 5_000 },
    { ...DEFAULT_BAND, name: "default", priority: 50, saturationCeiling: 0.9 },
    { ...DEFAULT_BAND, name: "bulk", saturationCeiling: 0.7, queueTtlMs: 300_000, maxWaitMs: 120_000 },
  ],
  noMachineTtlMs: 10_000,
  claimTtlMs: 30_000,
  failureThreshold: 5,
  cooldownMs: 30_000,
  maxRetryAfterSeconds: 60,
  policies: {},
};

/** What holds in one pool. */
export function settingsOfPool(settings: AdmissionSettings, pool: string): AdmissionSettings {
  const own = Object.hasOwn(settings.policies, pool) ? settings.policies[pool] : undefined;
  return own === undefined ? settings : { ...settings, policy: own };
}
