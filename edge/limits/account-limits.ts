import type {
  RateLimitState,
  ReserveDecision,
  ReserveRequest,
  ScopeLimits,
  SettleReservation,
} from "../ports/limits.ts";
import {
  IDLE_RATE,
  requestsLeft,
  takeRequest,
  WINDOW_MS,
  withoutOneRequest,
  type RequestRate,
} from "./request-rate.ts";
import { fullBucket, refilled, settleTokens, takeTokens, tokensLeft, type TokenBucket } from "./token-bucket.ts";

export interface LimitDefaults {
  /** `auth.default_rpm`: for requests of which no scope has a limit of its own; 0 is unlimited. */
  readonly requestsPerMinute: number;
  /** `auth.default_tpm` */
  readonly tokensPerMinute: number;
  /** A reservation that nobody settled is released after this; longer than any request may take. */
  readonly reservationTtlMs: number;
}

interface ScopeState {
  rate: RequestRate;
  /** Null until a request met a limit on tokens. */
  bucket: TokenBucket | null;
  spentNanoUsd: bigint;
  reservedNanoUsd: bigint;
}

/** A scope with the limits that apply to it now: null is none. */
interface EffectiveScope {
  readonly id: string;
  readonly state: ScopeState;
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly budgetNanoUsd: bigint | null;
}

interface Reservation {
  readonly scopes: readonly {
    readonly id: string;
    readonly requestsPerMinute: number | null;
    readonly tokensPerMinute: number | null;
  }[];
  readonly tokens: number;
  readonly costNanoUsd: bigint;
  readonly expiresAtMs: number;
  /** Its money was given back when it expired; a late settlement is still charged. */
  isExpired: boolean;
}

/** Before any answer was seen, a completion without a limit is taken to be this long. */
const FIRST_MEAN_TOKENS = 128;
const MEAN_WEIGHT = 0.1;
const WINDOW_SECONDS = WINDOW_MS / 1_000;

/**
 * The limits of one account: its keys' and projects' rates and budgets. All scopes of a request are taken or none.
 * Decisions depend on the arguments alone; `nowMs` is monotonic.
 *
 * A scope's own limit always applies; where no scope has one, the default applies to the narrowest. 0 lifts a rate
 * limit (the default too); a budget of 0 refuses everything; null is no budget.
 */
export class AccountLimits {
  readonly #defaults: LimitDefaults;
  readonly #scopes = new Map<string, ScopeState>();
  readonly #reservations = new Map<string, Reservation>();
  #meanCompletionTokens: number | null = null;

  constructor(defaults: LimitDefaults) {
    this.#defaults = defaults;
  }

  reserve(request: ReserveRequest, nowMs: number): ReserveDecision {
    this.#expire(nowMs);
    const scopes = this.#effective(request.scopes, nowMs);
    const costNanoUsd = BigInt(request.costBoundNanoUsd);
    const expected = request.outputTokensLimit ?? Math.ceil(this.#meanCompletionTokens ?? FIRST_MEAN_TOKENS);
    const tokens = request.inputTokensEstimate + expected;
    // A guess need not be covered in full: half of it must be there, and the rest is debt that later requests wait out.
    const neededTokens = request.outputTokensLimit === null ? Math.ceil(tokens / 2) : tokens;

    const taken: { state: ScopeState; rate: RequestRate; bucket: TokenBucket | null }[] = [];
    for (const scope of scopes) {
      const { state, requestsPerMinute, tokensPerMinute, budgetNanoUsd } = scope;
      if (budgetNanoUsd !== null && isOverBudget(state, budgetNanoUsd, costNanoUsd)) {
        return this.#refusal("insufficient_quota", scope, `budget of ${dollars(budgetNanoUsd)} US dollars`, {
          waitMs: null,
          scopes,
          nowMs,
        });
      }
      // A guess may be wrong and passes when the bucket is full; what the caller himself asks for is what he needs.
      if (tokensPerMinute !== null && request.outputTokensLimit !== null && tokens > tokensPerMinute) {
        return this.#refusal("rate_limit_exceeded", scope, `limit of ${tokensPerMinute} tokens per minute`, {
          waitMs: null,
          neededTokens: tokens,
          scopes,
          nowMs,
        });
      }
      let { rate, bucket } = state;
      if (requestsPerMinute !== null) {
        const result = takeRequest(rate, requestsPerMinute, nowMs);
        if (!result.ok) {
          return this.#refusal("rate_limit_exceeded", scope, `limit of ${requestsPerMinute} requests per minute`, {
            waitMs: result.waitMs,
            scopes,
            nowMs,
          });
        }
        rate = result.rate;
      }
      if (tokensPerMinute !== null && bucket !== null) {
        const result = takeTokens(bucket, tokensPerMinute, tokens, neededTokens);
        if (!result.ok) {
          return this.#refusal("rate_limit_exceeded", scope, `limit of ${tokensPerMinute} tokens per minute`, {
            waitMs: result.waitMs,
            scopes,
            nowMs,
          });
        }
        bucket = result.bucket;
      }
      taken.push({ state, rate, bucket });
    }
    for (const { state, rate, bucket } of taken) {
      state.rate = rate;
      state.bucket = bucket;
      state.reservedNanoUsd += costNanoUsd;
    }
    this.#reservations.set(request.requestId, {
      scopes: scopes.map(({ id, requestsPerMinute, tokensPerMinute }) => ({ id, requestsPerMinute, tokensPerMinute })),
      tokens,
      costNanoUsd,
      expiresAtMs: nowMs + this.#defaults.reservationTtlMs,
      isExpired: false,
    });
    return { kind: "granted", reservationId: request.requestId, state: rateLimitState(scopes, nowMs) };
  }

  settle(settlement: SettleReservation, nowMs: number): void {
    this.#expire(nowMs);
    const reservation = this.#reservations.get(settlement.reservationId);
    if (reservation === undefined) return;
    this.#reservations.delete(settlement.reservationId);
    const costNanoUsd = BigInt(settlement.costNanoUsd);
    for (const { id, requestsPerMinute, tokensPerMinute } of reservation.scopes) {
      const state = this.#scope(id);
      if (settlement.uncounted === true && requestsPerMinute !== null)
        state.rate = withoutOneRequest(state.rate, requestsPerMinute);
      if (!reservation.isExpired) state.reservedNanoUsd -= reservation.costNanoUsd;
      state.spentNanoUsd += costNanoUsd;
      if (tokensPerMinute === null || state.bucket === null) continue;
      const bucket = refilled(state.bucket, tokensPerMinute, nowMs);
      state.bucket = settleTokens(bucket, tokensPerMinute, reservation.tokens, settlement.totalTokens);
    }
    if (settlement.completionTokens > 0) this.#learn(settlement.completionTokens);
  }

  /** Adds money that was spent without a reservation here; it may be negative. */
  addSpent(scopeId: string, nanoUsd: bigint): void {
    this.#scope(scopeId).spentNanoUsd += nanoUsd;
  }

  /** For tests and the dashboard. */
  money(scopeId: string): { readonly spentNanoUsd: bigint; readonly reservedNanoUsd: bigint } {
    const { spentNanoUsd, reservedNanoUsd } = this.#scope(scopeId);
    return { spentNanoUsd, reservedNanoUsd };
  }

  #learn(completionTokens: number): void {
    const mean = this.#meanCompletionTokens;
    this.#meanCompletionTokens = mean === null ? completionTokens : mean + (completionTokens - mean) * MEAN_WEIGHT;
  }

  /** Reservations are in order of their expiry. One is kept for a second term, for a settlement that comes late. */
  #expire(nowMs: number): void {
    for (const [id, reservation] of this.#reservations) {
      if (nowMs < reservation.expiresAtMs) return;
      if (!reservation.isExpired) {
        reservation.isExpired = true;
        for (const scope of reservation.scopes) this.#scope(scope.id).reservedNanoUsd -= reservation.costNanoUsd;
      }
      if (nowMs >= reservation.expiresAtMs + this.#defaults.reservationTtlMs) this.#reservations.delete(id);
    }
  }

  #effective(
    scopes: readonly { readonly id: string; readonly limits: ScopeLimits }[],
    nowMs: number,
  ): EffectiveScope[] {
    const hasRequests = scopes.some(({ limits }) => limits.requestsPerMinute !== null);
    const hasTokens = scopes.some(({ limits }) => limits.tokensPerMinute !== null);
    return scopes.map(({ id, limits }, at) => {
      const isNarrowest = at === 0;
      const fallback = isNarrowest ? this.#defaults : null;
      const tokensPerMinute = rateOrNone(limits.tokensPerMinute ?? (hasTokens ? null : fallback?.tokensPerMinute));
      const state = this.#scope(id);
      if (tokensPerMinute !== null) {
        state.bucket = refilled(state.bucket ?? fullBucket(tokensPerMinute, nowMs), tokensPerMinute, nowMs);
      }
      return {
        id,
        state,
        requestsPerMinute: rateOrNone(limits.requestsPerMinute ?? (hasRequests ? null : fallback?.requestsPerMinute)),
        tokensPerMinute,
        budgetNanoUsd: limits.budgetNanoUsd === null ? null : BigInt(limits.budgetNanoUsd),
      };
    });
  }

  #scope(id: string): ScopeState {
    let state = this.#scopes.get(id);
    if (state === undefined) {
      state = { rate: IDLE_RATE, bucket: null, spentNanoUsd: 0n, reservedNanoUsd: 0n };
      this.#scopes.set(id, state);
    }
    return state;
  }

  #refusal(
    code: "rate_limit_exceeded" | "insufficient_quota",
    scope: EffectiveScope,
    limit: string,
    context: {
      /** Null: it is never free. */
      readonly waitMs: number | null;
      readonly neededTokens?: number;
      readonly scopes: readonly EffectiveScope[];
      readonly nowMs: number;
    },
  ): ReserveDecision {
    const { waitMs, neededTokens } = context;
    const [kind = "scope", ...name] = scope.id.split(":");
    let verb = code === "insufficient_quota" ? "does not cover this request" : "is reached";
    if (neededTokens !== undefined)
      verb = `can never fit this request, which needs ${neededTokens} tokens: shorten it or ask for fewer`;
    return {
      kind: "refused",
      code,
      message: `The ${limit} of ${kind} ${name.join(":")} ${verb}.`,
      retryAfterSeconds: waitMs === null ? null : Math.min(WINDOW_SECONDS, Math.max(1, Math.ceil(waitMs / 1_000))),
      state: rateLimitState(context.scopes, context.nowMs),
    };
  }
}

function isOverBudget(state: ScopeState, budgetNanoUsd: bigint, costNanoUsd: bigint): boolean {
  const afterNanoUsd = state.spentNanoUsd + state.reservedNanoUsd + costNanoUsd;
  // A budget of nothing refuses even what costs nothing.
  return budgetNanoUsd === 0n || afterNanoUsd > budgetNanoUsd;
}

function rateLimitState(scopes: readonly EffectiveScope[], nowMs: number): RateLimitState {
  const byRequests = scopes.find((scope) => scope.requestsPerMinute !== null);
  const byTokens = scopes.find((scope) => scope.tokensPerMinute !== null);
  const limitRequests = byRequests?.requestsPerMinute ?? null;
  const limitTokens = byTokens?.tokensPerMinute ?? null;
  const requests =
    byRequests === undefined || limitRequests === null
      ? null
      : requestsLeft(byRequests.state.rate, limitRequests, nowMs);
  const bucket = byTokens?.state.bucket ?? null;
  const tokens = bucket === null || limitTokens === null ? null : tokensLeft(bucket, limitTokens);
  return {
    limitRequests,
    remainingRequests: requests?.remaining ?? null,
    resetRequestsMs: requests?.resetMs ?? null,
    limitTokens,
    remainingTokens: tokens?.remaining ?? null,
    resetTokensMs: tokens?.resetMs ?? null,
  };
}

const rateOrNone = (perMinute: number | null | undefined): number | null =>
  perMinute === undefined || perMinute === null || perMinute === 0 ? null : perMinute;

/** Decimal text without trailing zeros. */
function dollars(nanoUsd: bigint): string {
  const fraction = (nanoUsd % 1_000_000_000n).toString().padStart(9, "0").replace(/0+$/, "");
  return `${nanoUsd / 1_000_000_000n}${fraction === "" ? "" : `.${fraction}`}`;
}
