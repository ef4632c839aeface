import { TransientMap } from "../../shared/transient-map.ts";
import type {
  InspectLimits,
  LimitedScope,
  LimitsView,
  ReserveDecision,
  ReserveRequest,
  SettleReservation,
  SpentMoney,
} from "../ports/limits.ts";
import type { RateResource } from "../ports/slice-store.ts";
import { budgetBlock, refusalOf, type Block } from "./block.ts";
import { budgetsOf, rateLimitState, scopeView, type EffectiveScope, type ScopeState } from "./effective-scope.ts";
import type { SliceNeed } from "./edge-slices.ts";
import { OutputMeans } from "./output-means.ts";
import { IDLE_RATE, requestsLeft, takeRequest, withoutOneRequest, type RequestRate } from "./request-rate.ts";
import { ScopeMoney, type MoneyState } from "./scope-money.ts";
import { sliceNeeds } from "./slice-needs.ts";
import { fullBucket, refilled, settleTokens, takeTokens, type TokenBucket } from "./token-bucket.ts";

export interface LimitDefaults {
  /** `auth.default_rpm`: for requests of which no scope has a limit of its own; 0 is unlimited. */
  readonly requestsPerMinute: number;
  /** `auth.default_tpm` */
  readonly tokensPerMinute: number;
  /** A reservation that nobody settled is released after this; longer than any request may take. */
  readonly reservationTtlMs: number;
}

interface TakenScope {
  readonly id: string;
  readonly requestsPerMinute: number | null;
  readonly tokensPerMinute: number | null;
  readonly tokens: number;
}

interface Reservation {
  readonly scopes: readonly TakenScope[];
  readonly model: string;
  readonly costNanoUsd: bigint;
  /** Unix milliseconds: the periods of its money. */
  readonly atMs: number;
  readonly reservedAtMs: number;
  readonly expiresAtMs: number;
  /** Its money was given back when it expired; a late settlement is still charged. */
  isExpired: boolean;
}

/** How long a reservation is held, before one was settled. */
const FIRST_HELD_MS = 5_000;
const HELD_WEIGHT = 0.1;

/**
 * The limits of one account: rates and budgets of its keys, its projects and itself. All scopes of a request are taken
 * or none. Decisions depend on the arguments alone; `nowMs` is monotonic.
 *
 * Every scope's own limit applies, so the one of which least is left decides; where no scope has one, the default
 * applies to the narrowest. 0 lifts a rate limit (the default too); a budget of 0 refuses everything; null is none.
 */
export class AccountLimits {
  #defaults: LimitDefaults;
  readonly #scopes = new Map<string, ScopeState>();
  readonly #reservations = new TransientMap<string, Reservation>();
  readonly #means = new OutputMeans();
  #heldMs = FIRST_HELD_MS;

  constructor(defaults: LimitDefaults) {
    this.#defaults = defaults;
  }

  reconfigure(defaults: LimitDefaults): void {
    this.#defaults = defaults;
  }

  reserve(request: ReserveRequest, nowMs: number): ReserveDecision {
    return this.#reserved(request, this.#effectiveNow(request.scopes, nowMs), nowMs);
  }

  /** The same, with what the request takes in each of its scopes, for whoever shares these limits with other owners. */
  reserveWithNeeds(
    request: ReserveRequest,
    nowMs: number,
  ): { readonly decision: ReserveDecision; readonly needs: readonly SliceNeed[] } {
    const scopes = this.#effectiveNow(request.scopes, nowMs);
    // What is expected of an answer, as it is before this request is one of those that it is told by.
    const needs = this.#needsOf(request, scopes);
    return { decision: this.#reserved(request, scopes, nowMs), needs };
  }

  #reserved(request: ReserveRequest, scopes: readonly EffectiveScope[], nowMs: number): ReserveDecision {
    const costNanoUsd = BigInt(request.costBoundNanoUsd);
    const { inputTokensEstimate, outputTokensLimit, model, atMs } = request;
    const isGuess = outputTokensLimit === null;
    const tokens = inputTokensEstimate + (outputTokensLimit ?? this.#means.expected(narrowestOf(scopes), model));
    // A guess need not be covered in full: half of it must be there, and the rest is debt that later requests wait out.
    const neededTokens = isGuess ? Math.ceil(tokens / 2) : tokens;

    const blocks: Block[] = [];
    const taken: { scope: EffectiveScope; rate: RequestRate; bucket: TokenBucket | null; tokens: number }[] = [];
    for (const scope of scopes) {
      const { state, requestsPerMinute, tokensPerMinute } = scope;
      for (const budget of scope.budgets) {
        const money = state.money.of(budget.period, atMs);
        const block = budgetBlock(scope.id, budget, { money, costNanoUsd, atMs, heldMs: this.#heldMs });
        if (block !== null) blocks.push(block);
      }
      let { rate, bucket } = state;
      let scopeTokens = tokens;
      if (requestsPerMinute !== null) {
        const result = takeRequest(rate, requestsPerMinute, nowMs);
        if (result.ok) rate = result.rate;
        else blocks.push({ kind: "requests", scopeId: scope.id, limit: requestsPerMinute, waitMs: result.waitMs });
      }
      if (tokensPerMinute !== null && bucket !== null) {
        // A guess may be wrong and takes at most the bucket; what the caller himself asks for is what he needs.
        if (isGuess) scopeTokens = Math.min(tokens, tokensPerMinute);
        const limit = { kind: "tokens", scopeId: scope.id, limit: tokensPerMinute } as const;
        const result = takeTokens(bucket, tokensPerMinute, scopeTokens, neededTokens);
        if (!isGuess && tokens > tokensPerMinute) blocks.push({ ...limit, waitMs: null, neededTokens: tokens });
        else if (result.ok) bucket = result.bucket;
        else blocks.push({ ...limit, waitMs: result.waitMs });
      }
      taken.push({ scope, rate, bucket, tokens: scopeTokens });
    }
    if (blocks.length > 0) return refusalOf(blocks, rateLimitState(scopes, nowMs));
    for (const { scope, rate, bucket } of taken) {
      scope.state.rate = rate;
      scope.state.bucket = bucket;
      scope.state.money.reserve(atMs, costNanoUsd);
    }
    this.#reservations.set(request.requestId, {
      scopes: taken.map(({ scope: { id, requestsPerMinute, tokensPerMinute }, tokens: reserved }) => ({
        id,
        requestsPerMinute,
        tokensPerMinute,
        tokens: reserved,
      })),
      model,
      costNanoUsd,
      atMs,
      reservedAtMs: nowMs,
      expiresAtMs: nowMs + this.#defaults.reservationTtlMs,
      isExpired: false,
    });
    return { kind: "granted", reservationId: request.requestId, state: rateLimitState(scopes, nowMs) };
  }

  #needsOf(request: ReserveRequest, scopes: readonly EffectiveScope[]): readonly SliceNeed[] {
    const { inputTokensEstimate, outputTokensLimit, model, atMs } = request;
    const expected = outputTokensLimit ?? this.#means.expected(narrowestOf(scopes), model);
    return sliceNeeds(scopes, {
      account: request.account,
      atMs,
      tokens: inputTokensEstimate + expected,
      isGuess: outputTokensLimit === null,
      costNanoUsd: BigInt(request.costBoundNanoUsd),
    });
  }

  /** What is left of a scope's rate; null of a scope that is not known. Tokens may be owed. */
  leftOf(scopeId: string, resource: RateResource, perMinute: number, nowMs: number): number | null {
    const state = this.#scopes.get(scopeId);
    if (state === undefined) return null;
    if (resource === "requests") return requestsLeft(state.rate, perMinute, nowMs).remaining;
    return state.bucket === null ? null : refilled(state.bucket, perMinute, nowMs).level;
  }

  settle(settlement: SettleReservation, nowMs: number): void {
    this.#expire(nowMs);
    const reservation = this.#reservations.get(settlement.reservationId);
    if (reservation === undefined) return;
    this.#reservations.delete(settlement.reservationId);
    const costNanoUsd = BigInt(settlement.costNanoUsd);
    for (const { id, requestsPerMinute, tokensPerMinute, tokens } of reservation.scopes) {
      const state = this.#scope(id);
      if (settlement.uncounted === true && requestsPerMinute !== null)
        state.rate = withoutOneRequest(state.rate, requestsPerMinute);
      if (!reservation.isExpired) state.money.release(reservation.atMs, reservation.costNanoUsd);
      state.money.spend(reservation.atMs, costNanoUsd);
      if (tokensPerMinute === null || state.bucket === null) continue;
      const bucket = refilled(state.bucket, tokensPerMinute, nowMs);
      state.bucket = settleTokens(bucket, tokensPerMinute, tokens, settlement.totalTokens);
    }
    this.#heldMs += (nowMs - reservation.reservedAtMs - this.#heldMs) * HELD_WEIGHT;
    if (settlement.completionTokens > 0)
      this.#means.learn(narrowestOf(reservation.scopes), reservation.model, settlement.completionTokens);
  }

  addSpent({ scopes, atMs, nanoUsd }: SpentMoney): void {
    for (const id of scopes) this.#scope(id).money.spend(atMs, BigInt(nanoUsd));
  }

  /** What applies and what is left; takes nothing. */
  inspect({ scopes, atMs }: Omit<InspectLimits, "account">, nowMs: number): LimitsView {
    this.#expire(nowMs);
    const effective = this.#effective(scopes, nowMs);
    return {
      state: rateLimitState(effective, nowMs),
      scopes: effective.map((scope) => scopeView(scope, { atMs, nowMs })),
    };
  }

  /** For tests: what a scope spent in all, and holds in reserve. */
  money(scopeId: string): MoneyState {
    const { spentNanoUsd, reservedNanoUsd } = this.#scope(scopeId).money.of("total", 0);
    return { spentNanoUsd, reservedNanoUsd };
  }

  /** Reservations are in order of their expiry. One is kept for a second term, for a settlement that comes late. */
  #expire(nowMs: number): void {
    // As nearly always, twice a request: nothing has run out, and there is nothing to go through.
    if (nowMs < (this.#reservations.first()?.expiresAtMs ?? Infinity)) return;
    for (const [id, reservation] of this.#reservations) {
      if (nowMs < reservation.expiresAtMs) return;
      if (!reservation.isExpired) {
        reservation.isExpired = true;
        for (const scope of reservation.scopes)
          this.#scope(scope.id).money.release(reservation.atMs, reservation.costNanoUsd);
      }
      if (nowMs >= reservation.expiresAtMs + this.#defaults.reservationTtlMs) this.#reservations.delete(id);
    }
  }

  #effectiveNow(scopes: readonly LimitedScope[], nowMs: number): EffectiveScope[] {
    this.#expire(nowMs);
    return this.#effective(scopes, nowMs);
  }

  #effective(scopes: readonly LimitedScope[], nowMs: number): EffectiveScope[] {
    const hasRequests = scopes.some(({ limits }) => limits.requestsPerMinute !== null);
    const hasTokens = scopes.some(({ limits }) => limits.tokensPerMinute !== null);
    return scopes.map(({ id, limits }, at) => {
      const fallback = at === 0 ? this.#defaults : null;
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
        budgets: budgetsOf(limits),
      };
    });
  }

  #scope(id: string): ScopeState {
    let state = this.#scopes.get(id);
    if (state === undefined) {
      state = { rate: IDLE_RATE, bucket: null, money: new ScopeMoney() };
      this.#scopes.set(id, state);
    }
    return state;
  }
}

const narrowestOf = (scopes: readonly { readonly id: string }[]): string => scopes[0]?.id ?? "";

const rateOrNone = (perMinute: number | null | undefined): number | null =>
  perMinute === undefined || perMinute === null || perMinute === 0 ? null : perMinute;
