import type { BudgetAsk, BudgetGrant, RateAsk, RateGrant } from "../ports/slice-store.ts";
import { WINDOW_MS } from "./request-rate.ts";

/** Slices given in advance to all edges together are at most this share of a rate's minute. */
export const AHEAD_SHARE = 1 / 8;
/** For so long after somebody was not served nobody gets anything in advance. */
const STARVED_KEPT_MS = 5_000;

/** What is left of a shared rate; `starvedSinceMs` is 0 while there is enough. */
export interface RatePool {
  readonly level: number;
  readonly atMs: number;
  readonly starvedSinceMs: number;
}

/**
 * Gives an edge its part of a shared rate. The pool is one bucket for all edges: what is given is taken from it at
 * once. What is given in advance shrinks with what is left and with the number of edges, and nobody gets any while
 * another waits in vain.
 */
export function grantRate(
  pool: RatePool | null,
  ask: RateAsk,
  { nowMs, edges }: { readonly nowMs: number; readonly edges: number },
): { readonly pool: RatePool; readonly grant: RateGrant } {
  const { perMinute, back, need, ahead, left } = ask;
  const known = pool ?? { level: perMinute, atMs: nowMs, starvedSinceMs: 0 };
  const refilled = known.level + (Math.max(0, nowMs - known.atMs) * perMinute) / WINDOW_MS;
  const level = Math.min(perMinute, left ?? Infinity, Math.min(perMinute, refilled) + back);
  const slice = Math.min(Math.max(0, level) / (2 * edges), (perMinute * AHEAD_SHARE) / edges);
  const wanted = Math.max(need, ahead && known.starvedSinceMs === 0 ? slice : 0);
  const granted = Math.max(0, Math.min(level, wanted));
  const after = level - granted;
  let starvedSinceMs = known.starvedSinceMs;
  if (need > 0 && granted < need) starvedSinceMs = starvedSinceMs === 0 ? nowMs : starvedSinceMs;
  else if (nowMs - starvedSinceMs >= STARVED_KEPT_MS) starvedSinceMs = 0;
  return {
    pool: { level: after, atMs: nowMs, starvedSinceMs },
    grant: { granted, left: after, starvedForMs: starvedSinceMs === 0 ? null : nowMs - starvedSinceMs },
  };
}

/** What counts against a budget besides what the asking edge holds. */
export interface BudgetState {
  readonly spentNanoUsd: bigint;
  /** Held by the other edges, dead ones included: they may add it to what is spent. */
  readonly othersNanoUsd: bigint;
  readonly starvedSinceMs: number;
}

/**
 * What an edge may hold of a budget from now on. Spent, held by others and held by this one never exceed the limit
 * through a grant, so that no edge can overspend whatever becomes of the others.
 */
export function grantBudget(
  state: BudgetState,
  ask: BudgetAsk,
  { nowMs, edges }: { readonly nowMs: number; readonly edges: number },
): { readonly starvedSinceMs: number; readonly grant: BudgetGrant } {
  const limit = BigInt(ask.limitNanoUsd);
  const committed = BigInt(ask.committedNanoUsd);
  const keep = BigInt(ask.keepNanoUsd);
  const need = BigInt(ask.needNanoUsd);
  const left = limit - state.spentNanoUsd - state.othersNanoUsd;
  const slice = left > committed ? (left - committed) / BigInt(2 * edges) : 0n;
  const wanted = largest(keep, need, ask.ahead && state.starvedSinceMs === 0 ? committed + slice : 0n);
  const held = wanted <= left ? wanted : largest(keep, left);
  const free = left - held;
  let { starvedSinceMs } = state;
  if (held < need) starvedSinceMs = starvedSinceMs === 0 ? nowMs : starvedSinceMs;
  else if (nowMs - starvedSinceMs >= STARVED_KEPT_MS) starvedSinceMs = 0;
  return {
    starvedSinceMs,
    grant: {
      heldNanoUsd: held.toString(),
      freeNanoUsd: (free > 0n ? free : 0n).toString(),
      spentNanoUsd: state.spentNanoUsd.toString(),
      othersNanoUsd: state.othersNanoUsd.toString(),
      starvedForMs: starvedSinceMs === 0 ? null : nowMs - starvedSinceMs,
    },
  };
}

const largest = (...values: readonly bigint[]): bigint => values.reduce((most, value) => (value > most ? value : most));
