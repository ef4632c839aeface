import type { BudgetPeriod, RateLimitState, RateView, ScopeLimits, ScopeView } from "../ports/limits.ts";
import { periodEndMs } from "./period.ts";
import { requestsLeft, type RequestRate } from "./request-rate.ts";
import type { ScopeMoney } from "./scope-money.ts";
import { tokensLeft, type TokenBucket } from "./token-bucket.ts";

export interface ScopeState {
  rate: RequestRate;
  /** Null until a request met a limit on tokens. */
  bucket: TokenBucket | null;
  readonly money: ScopeMoney;
}

export interface Budget {
  readonly period: BudgetPeriod;
  readonly limitNanoUsd: bigint;
}

/** A scope with the limits that apply to it now: null is none. */
export interface EffectiveScope {
  readonly id: string;
  readonly state: ScopeState;
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly budgets: readonly Budget[];
}

/** Of limits that were read already: a key's stay the same object from one request to the next. */
const KNOWN_BUDGETS = new WeakMap<ScopeLimits, readonly Budget[]>();

export function budgetsOf(limits: ScopeLimits): readonly Budget[] {
  const known = KNOWN_BUDGETS.get(limits);
  if (known !== undefined) return known;
  const given: readonly [BudgetPeriod, string | null][] = [
    ["day", limits.budgetDayNanoUsd],
    ["month", limits.budgetMonthNanoUsd],
    ["total", limits.budgetNanoUsd],
  ];
  const budgets = given.flatMap(([period, limit]) => (limit === null ? [] : [{ period, limitNanoUsd: BigInt(limit) }]));
  KNOWN_BUDGETS.set(limits, budgets);
  return budgets;
}

/** Of every scope the limit of which least is left; of two the narrower one's. */
export function rateLimitState(scopes: readonly EffectiveScope[], nowMs: number): RateLimitState {
  let requests: RateView | null = null;
  let tokens: RateView | null = null;
  for (const scope of scopes) {
    requests = narrower(requests, requestsView(scope, nowMs));
    tokens = narrower(tokens, tokensView(scope));
  }
  return stateOf(requests, tokens);
}

export function stateOf(requests: RateView | null, tokens: RateView | null): RateLimitState {
  return {
    limitRequests: requests?.limit ?? null,
    remainingRequests: requests?.remaining ?? null,
    resetRequestsMs: requests?.resetMs ?? null,
    limitTokens: tokens?.limit ?? null,
    remainingTokens: tokens?.remaining ?? null,
    resetTokensMs: tokens?.resetMs ?? null,
  };
}

/** `atMs` is Unix milliseconds, `nowMs` monotonic. */
export function scopeView(scope: EffectiveScope, time: { readonly atMs: number; readonly nowMs: number }): ScopeView {
  return {
    id: scope.id,
    requests: requestsView(scope, time.nowMs),
    tokens: tokensView(scope),
    budgets: scope.budgets.map(({ period, limitNanoUsd }) => {
      const { spentNanoUsd, reservedNanoUsd } = scope.state.money.of(period, time.atMs);
      return {
        period,
        limitNanoUsd: limitNanoUsd.toString(),
        spentNanoUsd: spentNanoUsd.toString(),
        reservedNanoUsd: reservedNanoUsd.toString(),
        endsAtMs: periodEndMs(period, time.atMs),
      };
    }),
  };
}

function requestsView({ requestsPerMinute, state }: EffectiveScope, nowMs: number): RateView | null {
  if (requestsPerMinute === null) return null;
  const { remaining, resetMs } = requestsLeft(state.rate, requestsPerMinute, nowMs);
  return { limit: requestsPerMinute, remaining, resetMs };
}

function tokensView({ tokensPerMinute, state }: EffectiveScope): RateView | null {
  if (tokensPerMinute === null || state.bucket === null) return null;
  const { remaining, resetMs } = tokensLeft(state.bucket, tokensPerMinute);
  return { limit: tokensPerMinute, remaining, resetMs };
}

export function leastLeft(views: readonly (RateView | null)[]): RateView | null {
  let least: RateView | null = null;
  for (const view of views) least = narrower(least, view);
  return least;
}

function narrower(one: RateView | null, other: RateView | null): RateView | null {
  if (one === null || other === null) return one ?? other;
  return other.remaining < one.remaining ? other : one;
}
