/** Rate limits and budgets of one scope; null is no limit of its own, 0 is "nothing at all" for a budget. */
export interface ScopeLimits {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  /** Nano-dollars in all; decimal text, since it crosses JSON. */
  readonly budgetNanoUsd: string | null;
  /** The same for each day and each month in UTC. */
  readonly budgetDayNanoUsd: string | null;
  readonly budgetMonthNanoUsd: string | null;
}

export const NO_SCOPE_LIMITS: ScopeLimits = {
  requestsPerMinute: null,
  tokensPerMinute: null,
  budgetNanoUsd: null,
  budgetDayNanoUsd: null,
  budgetMonthNanoUsd: null,
};

/** A scope by its id, `key:...`, `project:...` or `account:...`, and what is set for it. */
export interface LimitedScope {
  readonly id: string;
  readonly limits: ScopeLimits;
}

export interface ReserveRequest {
  readonly account: string;
  readonly requestId: string;
  /** When it was received, Unix milliseconds: its money belongs to the day and month of that. */
  readonly atMs: number;
  /** What a key's answers are usually long depends on it. */
  readonly model: string;
  /** From the narrowest scope to the widest: key, project, account. All are taken or none. */
  readonly scopes: readonly LimitedScope[];
  readonly inputTokensEstimate: number;
  /** The explicit limit of the request, or null: then the running mean is reserved, with debt. */
  readonly outputTokensLimit: number | null;
  /** The most this request can cost. Nano-dollars, decimal text. */
  readonly costBoundNanoUsd: string;
}

/** For the x-ratelimit-* headers: of all scopes the limit of which least is left. Null where there is none. */
export interface RateLimitState {
  readonly limitRequests: number | null;
  readonly remainingRequests: number | null;
  readonly resetRequestsMs: number | null;
  readonly limitTokens: number | null;
  readonly remainingTokens: number | null;
  readonly resetTokensMs: number | null;
}

export type ReserveDecision =
  | { readonly kind: "granted"; readonly reservationId: string; readonly state: RateLimitState }
  | {
      readonly kind: "refused";
      readonly code: "rate_limit_exceeded" | "insufficient_quota" | "limits_unavailable";
      /** Names the scope, the limit and its value. */
      readonly message: string;
      /** Null where waiting does not help: it can never fit the limit, or a budget is used up for good. */
      readonly retryAfterSeconds: number | null;
      readonly state: RateLimitState;
    };

export interface SettleReservation {
  readonly account: string;
  readonly reservationId: string;
  readonly totalTokens: number;
  readonly completionTokens: number;
  /** Decimal text. */
  readonly costNanoUsd: string;
  /** Refused for the caller's own fault before anything was computed: the request does not count either. */
  readonly uncounted?: boolean;
}

/** Money that was spent without a reservation here, in the day and month of `atMs`. It may be negative. */
export interface SpentMoney {
  readonly scopes: readonly string[];
  readonly atMs: number;
  /** Decimal text. */
  readonly nanoUsd: string;
}

export type BudgetPeriod = "day" | "month" | "total";

export interface BudgetView {
  readonly period: BudgetPeriod;
  /** Decimal text of nano-dollars, as all of these. */
  readonly limitNanoUsd: string;
  readonly spentNanoUsd: string;
  /** Held for requests that run. */
  readonly reservedNanoUsd: string;
  /** Unix milliseconds at which it begins anew; null for `total`. */
  readonly endsAtMs: number | null;
}

export interface RateView {
  readonly limit: number;
  readonly remaining: number;
  /** Until all of it is free again. */
  readonly resetMs: number;
}

/** What applies to a scope now, and what is left of it. */
export interface ScopeView {
  readonly id: string;
  readonly requests: RateView | null;
  readonly tokens: RateView | null;
  readonly budgets: readonly BudgetView[];
}

export interface InspectLimits {
  readonly account: string;
  readonly scopes: readonly LimitedScope[];
  /** Unix milliseconds. */
  readonly atMs: number;
}

export interface LimitsView {
  readonly state: RateLimitState;
  readonly scopes: readonly ScopeView[];
}

/** Owner of the rate buckets and budgets of an account; pure state behind it, one per account. */
export interface Limits {
  reserve(request: ReserveRequest): Promise<ReserveDecision>;
  /** Exact counts for a reservation; the rest is refunded. Once; later calls for it change nothing. */
  settle(request: SettleReservation): Promise<void>;
  /** Adds up: what the ledger already holds, told once at the start, and what it adjusts later. */
  addSpent(account: string, spent: readonly SpentMoney[]): Promise<void>;
  /** Takes nothing. */
  inspect(request: InspectLimits): Promise<LimitsView>;
}
