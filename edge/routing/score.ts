import { inFlightOf, isFresh, type Candidate, type RoutingSettings } from "./candidate.ts";

/** A prompt token is computed this much faster than one is generated. */
const PROMPT_SHARE = 0.1;
/** Work of a request of which nothing is known, as those of other edges. */
export const TYPICAL_WORK = 512;
/** Seconds of delay that a half-full KV cache is worth. */
const KV_SECONDS = 0.15;
const FULLEST_KV = 0.99;

/** What a request costs a machine, in work tokens: those generated, and a share of those read. */
export function workOf(promptTokens: number, completionTokens: number): number {
  return promptTokens * PROMPT_SHARE + completionTokens;
}

/**
 * Seconds until this machine would have done what it has, and `ownWork` with it; plus a term that grows without bound
 * as its KV cells run out. All terms are seconds, so they add up.
 */
export function secondsOf(candidate: Candidate, ownWork: number, settings: RoutingSettings): number {
  const fresh = isFresh(candidate, settings);
  const others = inFlightOf(candidate, settings) - candidate.ownInFlight + (fresh ? candidate.waiting : 0);
  const work = candidate.ownWork + others * TYPICAL_WORK + ownWork;
  const speed = candidate.workPerSecond * candidate.weight * candidate.warmth;
  const drain = work / Math.max(speed, Number.EPSILON);
  if (!fresh || candidate.kvUse === null) return drain;
  const kv = Math.min(FULLEST_KV, Math.max(0, candidate.kvUse));
  return drain + (KV_SECONDS * kv) / (1 - kv);
}
