import { kept } from "../routing/kept.ts";
import { inFlightOf, isFresh, isReachable, type Candidate, type RoutingSettings } from "../routing/candidate.ts";

/**
 * How full a machine is: 1 is where it should get no more, and more than 1 says by how much. The worst of its queue,
 * its KV cells and its requests; a stale report leaves only the requests that we know of ourselves.
 */
export function saturationOf(candidate: Candidate, settings: RoutingSettings): number {
  const inFlight = inFlightTerm(candidate, settings);
  if (!isFresh(candidate, settings)) return inFlight;
  const waiting = candidate.waiting / Math.max(settings.targetWaiting, Number.EPSILON);
  const kv = (candidate.kvUse ?? 0) / Math.max(settings.kvCeiling, Number.EPSILON);
  return Math.max(waiting, kv, inFlight);
}

/**
 * The pool's value, weighted by slots, over the machines that could be chosen now. A pool of one is judged by its
 * requests alone: they end by themselves, while waiting for its other figures to improve could stop it for good.
 */
export function poolSaturation(candidates: readonly Candidate[], settings: RoutingSettings, nowMs: number): number {
  const usable = kept(candidates, ({ usable: isUsable }) => isUsable);
  const reachable = kept(usable, (candidate) => isReachable(candidate, settings));
  const healthy = kept(reachable, ({ ejectedUntilMs, probing }) => ejectedUntilMs <= nowMs && !probing);
  const counted = healthy.length > 0 ? healthy : reachable.length > 0 ? reachable : usable;
  const slots = counted.reduce((sum, candidate) => sum + candidate.slots, 0);
  if (slots === 0) return 1;
  const termOf = counted.length === 1 ? inFlightTerm : saturationOf;
  const sum = counted.reduce((total, candidate) => {
    const term = candidate.busyUntilMs > nowMs ? 1 : 0;
    return total + candidate.slots * Math.max(term, termOf(candidate, settings));
  }, 0);
  return sum / slots;
}

function inFlightTerm(candidate: Candidate, settings: RoutingSettings): number {
  const target = settings.targetInFlight ?? candidate.slots;
  return inFlightOf(candidate, settings) / Math.max(target, Number.EPSILON);
}
