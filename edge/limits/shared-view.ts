import type { LimitsView, RateLimitState, RateView, ScopeView } from "../ports/limits.ts";
import type { RateResource } from "../ports/slice-store.ts";
import type { Block } from "./block.ts";
import type { EdgeSlices, SliceNeed } from "./edge-slices.ts";
import { leastLeft, stateOf } from "./effective-scope.ts";
import { periodStartMs } from "./period.ts";
import { WINDOW_MS } from "./request-rate.ts";

/** How long something that is reserved for others usually stays so. */
const RESERVED_WAIT_MS = 5_000;

export interface Patience {
  readonly nowMs: number;
  /** After this the other edges have given back what they did not need. */
  readonly returnMs: number;
  /** Nothing is waited for any more. */
  readonly isOver: boolean;
}

/** What stands against a request that this need was asked for in vain; empty where waiting a little may help. */
export function blockOf(need: SliceNeed, slices: EdgeSlices, { nowMs, returnMs, isOver }: Patience): Block[] {
  if (need.kind === "rate") {
    const { scope: scopeId, resource: kind, perMinute: limit } = need;
    const starvedForMs = slices.rate(scopeId, kind)?.starvedForMs ?? null;
    if (!isOver && (starvedForMs === null || starvedForMs < returnMs)) return [];
    const left = slices.leftOfRate(scopeId, kind, nowMs) ?? 0;
    return [{ kind, scopeId, limit, waitMs: Math.max(1, ((need.needed - left) * WINDOW_MS) / limit) }];
  }
  const { scope: scopeId, period, endMs, limitNanoUsd, amountNanoUsd } = need;
  const known = slices.budget(need);
  const block = { kind: "budget", scopeId, budget: { period, limitNanoUsd }, endsAtMs: endMs } as const;
  if (known !== null && known.spentNanoUsd + amountNanoUsd > limitNanoUsd)
    return [{ ...block, why: "spent", waitMs: endMs === null ? null : WINDOW_MS }];
  const starvedForMs = known?.starvedForMs ?? null;
  if (!isOver && (starvedForMs === null || starvedForMs < returnMs)) return [];
  return [{ ...block, why: "reserved", waitMs: RESERVED_WAIT_MS }];
}

/** What is left for the caller, the other edges' requests included. */
export function sharedState(
  needs: readonly SliceNeed[],
  slices: EdgeSlices,
  own: RateLimitState,
  nowMs: number,
): RateLimitState {
  const requests = leastOf("requests", needs, slices, nowMs);
  const tokens = leastOf("tokens", needs, slices, nowMs);
  let state = own;
  if (requests !== null && requests.remaining < (own.remainingRequests ?? Infinity))
    state = {
      ...state,
      limitRequests: requests.limit,
      remainingRequests: requests.remaining,
      resetRequestsMs: requests.resetMs,
    };
  if (tokens !== null && tokens.remaining < (own.remainingTokens ?? Infinity))
    state = { ...state, limitTokens: tokens.limit, remainingTokens: tokens.remaining, resetTokensMs: tokens.resetMs };
  return state;
}

/** The same for all that applies to a key. */
export function sharedView(view: LimitsView, slices: EdgeSlices, atMs: number, nowMs: number): LimitsView {
  const scopes = view.scopes.map((scope): ScopeView => ({
    ...scope,
    requests: leastRate(scope.requests, slices.leftOfRate(scope.id, "requests", nowMs)),
    tokens: leastRate(scope.tokens, slices.leftOfRate(scope.id, "tokens", nowMs)),
    budgets: scope.budgets.map((budget) => {
      const { period } = budget;
      const known = slices.budget({ scope: scope.id, period, startMs: periodStartMs(period, atMs) });
      return known === null
        ? budget
        : {
            ...budget,
            spentNanoUsd: known.spentNanoUsd.toString(),
            reservedNanoUsd: known.reservedNanoUsd.toString(),
          };
    }),
  }));
  const requests = leastLeft(scopes.map((scope) => scope.requests));
  const tokens = leastLeft(scopes.map((scope) => scope.tokens));
  return {
    scopes,
    state: stateOf(requests, tokens),
  };
}

function leastOf(
  resource: RateResource,
  needs: readonly SliceNeed[],
  slices: EdgeSlices,
  nowMs: number,
): RateView | null {
  return leastLeft(
    needs.map((need) =>
      need.kind === "rate" && need.resource === resource
        ? rateView(need.perMinute, slices.leftOfRate(need.scope, resource, nowMs))
        : null,
    ),
  );
}

function leastRate(own: RateView | null, left: number | null): RateView | null {
  return own === null ? null : leastLeft([own, rateView(own.limit, left)]);
}

function rateView(limit: number, left: number | null): RateView | null {
  if (left === null) return null;
  return { limit, remaining: Math.floor(left), resetMs: ((limit - left) * WINDOW_MS) / limit };
}
