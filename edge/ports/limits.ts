/** Rate limits and budgets of one scope; null is no limit of its own, 0 is "nothing at all" for a budget. */
export interface ScopeLimits {
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  /** Nano-dollars in all; decimal text, since it crosses JSON. */
  readonly budgetNanoUsd: string | null;
}

export interface ReserveRequest {
  readonly account: string;
  readonly requestId: string;
  /** From the narrowest scope to the widest: key, project. All are taken or none. */
  readonly scopes: readonly { readonly id: string; readonly limits: ScopeLimits }[];
  readonly inputTokensEstimate: number;
  /** The explicit limit of the request, or null: then the running mean is reserved, with debt. */
  readonly outputTokensLimit: number | null;
  /** The most this request can cost. Nano-dollars, decimal text. */
  readonly costBoundNanoUsd: string;
}

/** For the x-ratelimit-* headers: the narrowest scope that has a limit. Null where there is none. */
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
      readonly code: "rate_limit_exceeded" | "insufficient_quota";
      /** Names the scope, the limit and its value. */
      readonly message: string;
      /** Null where waiting does not help: it can never fit the limit, or a budget is used up. */
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

/** Owner of the rate buckets and budgets of an account; pure state behind it, one per account. */
export interface Limits {
  reserve(request: ReserveRequest): Promise<ReserveDecision>;
  /** Exact counts for a reservation; the rest is refunded. Once; later calls for it change nothing. */
  settle(request: SettleReservation): Promise<void>;
  /** What the ledger already holds, told once at the start so that budgets outlive a restart. */
  seedSpent(account: string, spentNanoUsdByScope: Readonly<Record<string, string>>): Promise<void>;
}
