import { TransientMap } from "../../shared/transient-map.ts";
import type { BudgetPeriod } from "../ports/limits.ts";
import type { BudgetAsk, RateAsk, RateResource, SliceAnswer } from "../ports/slice-store.ts";
import { WINDOW_MS } from "./request-rate.ts";

/** One part of what a request takes, in one scope. */
export type SliceNeed = RateNeed | BudgetNeed;

export interface RateNeed {
  readonly kind: "rate";
  readonly scope: string;
  readonly resource: RateResource;
  readonly perMinute: number;
  /** Taken. */
  readonly amount: number;
  /** What must be there; the rest may be debt. */
  readonly needed: number;
}

export interface BudgetNeed {
  readonly kind: "budget";
  readonly scope: string;
  readonly period: BudgetPeriod;
  /** Account, project and key id, as far as the scope reaches down. */
  readonly path: readonly string[];
  readonly startMs: number;
  readonly endMs: number | null;
  readonly limitNanoUsd: bigint;
  readonly amountNanoUsd: bigint;
}

interface RateSlice {
  perMinute: number;
  credit: number;
  /** Credit in the hand after the last grant. */
  granted: number;
  usedAtMs: number;
  /** What requests that wait need in all. */
  waiting: number;
  left: number;
  leftAtMs: number;
  starvedForMs: number | null;
}

interface BudgetSlice {
  readonly scope: string;
  readonly period: BudgetPeriod;
  readonly path: readonly string[];
  readonly startMs: number;
  readonly endMs: number | null;
  limitNanoUsd: bigint;
  held: bigint;
  /** Reserved, or settled and not in the database yet. */
  committed: bigint;
  /** Beyond what is committed, after the last grant. */
  granted: bigint;
  usedAtMs: number;
  waiting: bigint;
  free: bigint;
  spent: bigint;
  others: bigint;
  starvedForMs: number | null;
  /** Came into the database while an answer was on its way, which may not count it as spent. */
  closed: bigint;
  /** What the database has of this edge; -1 where that is not known. */
  told: bigint;
}

interface Taken {
  readonly needs: readonly SliceNeed[];
  isSettled: boolean;
  isRecorded: boolean;
  costNanoUsd: bigint;
}

/** Unused credit goes back after this, so that what one edge does not need serves the others. */
const RATE_IDLE_MS = 2_000;
const BUDGET_IDLE_MS = 10_000;
const ROUNDING = 1e-6;

/**
 * What this edge has in its hand of the limits that it shares: credit of rates, and parts of budgets. Requests take
 * from it at once; `asks` says what to tell the database and `apply` takes its answer. No clock, no I/O.
 */
export class EdgeSlices {
  readonly #rates = new Map<string, RateSlice>();
  readonly #budgets = new Map<string, BudgetSlice>();
  readonly #taken = new TransientMap<string, Taken>();
  #edges = 2;
  #alone = true;

  /** Until here nothing was shared, and what was taken is known by other rules; from now on it counts. */
  beginSharing(): void {
    this.#alone = false;
  }

  /** The next ask gives back all that is not committed. */
  endSharing(): void {
    for (const slice of this.#rates.values()) slice.usedAtMs = Number.NEGATIVE_INFINITY;
    for (const slice of this.#budgets.values()) slice.usedAtMs = Number.NEGATIVE_INFINITY;
  }

  /** Forgets what an edge that is alone need not remember for the day on which it is not. */
  prune(nowMs: number): void {
    if (!this.#alone) return;
    for (const [key, slice] of this.#rates) if (nowMs - slice.usedAtMs >= WINDOW_MS) this.#rates.delete(key);
    for (const [key, slice] of this.#budgets) if (slice.committed === 0n) this.#budgets.delete(key);
  }

  /** Takes everything that a request needs, or nothing: then what is missing is returned. */
  take(requestId: string, needs: readonly SliceNeed[], nowMs: number): readonly SliceNeed[] {
    const missing = needs.filter((need) => !this.#covers(need, nowMs));
    if (missing.length > 0) return missing;
    this.takeAnyway(requestId, needs, nowMs);
    return [];
  }

  /** For requests that were let in by other rules; money that is not held makes the next answer's grant. */
  takeAnyway(requestId: string, needs: readonly SliceNeed[], nowMs: number): void {
    for (const need of needs) {
      if (need.kind === "rate") {
        const slice = this.#rate(need, nowMs);
        if (!this.#alone) slice.credit -= need.amount;
        slice.usedAtMs = nowMs;
      } else {
        const slice = this.#budget(need, nowMs);
        slice.committed += need.amountNanoUsd;
        slice.usedAtMs = nowMs;
      }
    }
    this.#taken.set(requestId, { needs, isSettled: false, isRecorded: false, costNanoUsd: 0n });
  }

  /** What the request really used. Its cost stays committed until its row is in the database. */
  settle(
    requestId: string,
    used: { readonly totalTokens: number; readonly costNanoUsd: bigint; readonly uncounted: boolean },
  ): void {
    const taken = this.#taken.get(requestId);
    if (taken === undefined || taken.isSettled) return;
    taken.isSettled = true;
    taken.costNanoUsd = used.costNanoUsd;
    for (const need of taken.needs) {
      if (need.kind === "rate") {
        const slice = this.#rates.get(rateKey(need));
        if (slice === undefined || this.#alone) continue;
        if (need.resource === "tokens") slice.credit += need.amount - used.totalTokens;
        else if (used.uncounted) slice.credit += need.amount;
      } else {
        const slice = this.#budgets.get(budgetKey(need));
        if (slice !== undefined) slice.committed += used.costNanoUsd - need.amountNanoUsd;
      }
    }
    const isMoney = used.costNanoUsd > 0n && taken.needs.some(({ kind }) => kind === "budget");
    if (taken.isRecorded || !isMoney) this.#close(requestId, taken);
  }

  /** The request's row is in the database, where it counts from now on. */
  recorded(requestId: string): void {
    const taken = this.#taken.get(requestId);
    if (taken === undefined) return;
    taken.isRecorded = true;
    if (taken.isSettled) this.#close(requestId, taken);
  }

  /** The most that a request's money may still be; null where nothing is held for it. */
  reservedNanoUsd(requestId: string): bigint | null {
    const taken = this.#taken.get(requestId);
    if (taken === undefined) return null;
    const amounts = taken.needs.flatMap((need) => (need.kind === "budget" ? [need.amountNanoUsd] : []));
    if (amounts.length === 0) return null;
    return taken.isSettled ? taken.costNanoUsd : amounts.reduce((most, one) => (one > most ? one : most), 0n);
  }

  /** A request waits for this: the next ask has it in. */
  await(needs: readonly SliceNeed[], nowMs: number): void {
    for (const need of needs) {
      if (need.kind === "rate") this.#rate(need, nowMs).waiting += need.needed;
      else this.#budget(need, nowMs).waiting += need.amountNanoUsd;
    }
  }

  /** True when a slice runs low, so that asking now saves a request its wait. */
  get isLow(): boolean {
    for (const slice of this.#rates.values()) if (isRateLow(slice)) return true;
    for (const slice of this.#budgets.values()) if (isBudgetLow(slice)) return true;
    return false;
  }

  /**
   * What to ask for now. What goes back is out of this edge's hands from here on, whether the answer comes or not.
   * `leftOf` tells what an edge that was alone knows to be left of a rate.
   */
  asks(
    nowMs: number,
    leftOf: (scope: string, resource: RateResource, perMinute: number) => number | null = () => null,
  ): { readonly rates: readonly RateAsk[]; readonly budgets: readonly BudgetAsk[] } {
    const rates: RateAsk[] = [];
    for (const [key, slice] of this.#rates) {
      const [resource, scope] = splitKey(key);
      const quiet = slice.waiting === 0;
      const idle = quiet && nowMs - slice.usedAtMs >= RATE_IDLE_MS;
      const short = quiet && slice.starvedForMs !== null;
      const back = idle || short || slice.credit < 0 ? slice.credit : 0;
      const left = leftOf(scope, resource, slice.perMinute);
      if (back === 0 && quiet && left === null && !isRateLow(slice)) {
        if (idle && slice.credit === 0) this.#rates.delete(key);
        continue;
      }
      slice.credit -= back;
      const need = Math.max(0, slice.waiting - slice.credit);
      rates.push({ scope, resource, perMinute: slice.perMinute, back, need, ahead: !idle && !short, left });
      slice.waiting = 0;
    }
    const budgets: BudgetAsk[] = [];
    for (const [key, slice] of this.#budgets) {
      const quiet = slice.waiting === 0n;
      const idle = quiet && nowMs - slice.usedAtMs >= BUDGET_IDLE_MS;
      const short = quiet && slice.starvedForMs !== null;
      const ahead = !idle && !short;
      if (idle && slice.told === 0n && slice.committed === 0n) {
        this.#budgets.delete(key);
        continue;
      }
      const unused = slice.held > slice.committed ? slice.held - slice.committed : 0n;
      const fair = (slice.free + unused) / BigInt(2 * this.#edges);
      const kept = slice.committed + (ahead ? smaller(unused, fair) : 0n);
      // Whoever holds something in advance asks each time, to hear whether others are short of it.
      if (quiet && kept === slice.told && slice.held === slice.committed && !isBudgetLow(slice)) continue;
      slice.held = smaller(slice.held, kept);
      slice.told = -1n;
      budgets.push({
        scope: slice.scope,
        period: slice.period,
        path: slice.path,
        startMs: slice.startMs,
        endMs: slice.endMs,
        limitNanoUsd: slice.limitNanoUsd.toString(),
        committedNanoUsd: slice.committed.toString(),
        keepNanoUsd: larger(slice.held, slice.committed).toString(),
        needNanoUsd: (slice.committed + slice.waiting).toString(),
        ahead,
      });
      slice.waiting = 0n;
      slice.closed = 0n;
    }
    return { rates, budgets };
  }

  apply(
    asked: { readonly rates: readonly RateAsk[]; readonly budgets: readonly BudgetAsk[] },
    answer: Extract<SliceAnswer, { kind: "granted" }>,
    nowMs: number,
  ): void {
    this.#edges = Math.max(1, answer.edges);
    asked.rates.forEach((ask, place) => {
      const grant = answer.rates[place];
      const slice = this.#rates.get(rateKey(ask));
      if (grant === undefined || slice === undefined) return;
      slice.credit += grant.granted;
      slice.granted = slice.credit;
      slice.left = grant.left;
      slice.leftAtMs = nowMs;
      slice.starvedForMs = grant.starvedForMs;
    });
    asked.budgets.forEach((ask, place) => {
      const grant = answer.budgets[place];
      const slice = this.#budgets.get(budgetKey(ask));
      if (grant === undefined || slice === undefined) return;
      slice.told = BigInt(grant.heldNanoUsd);
      slice.held = slice.told - slice.closed;
      slice.granted = slice.held - slice.committed;
      slice.free = BigInt(grant.freeNanoUsd);
      slice.spent = BigInt(grant.spentNanoUsd);
      slice.others = BigInt(grant.othersNanoUsd);
      slice.starvedForMs = grant.starvedForMs;
    });
  }

  /** No answer came: what went back may be lost, what was owed is still owed. */
  failed(asked: { readonly rates: readonly RateAsk[] }): void {
    for (const ask of asked.rates) {
      const slice = this.#rates.get(rateKey(ask));
      if (slice !== undefined && ask.back < 0) slice.credit += ask.back;
    }
  }

  /** Cut off from the database: every edge goes on with its part of each rate, and with what it holds of budgets. */
  refillAlone(passedMs: number): void {
    for (const slice of this.#rates.values()) {
      const share = slice.perMinute / this.#edges;
      slice.credit = Math.min(share, slice.credit + (share * passedMs) / WINDOW_MS);
    }
  }

  /** Back at the database: what was made up while it was away is not given back to it. */
  forgetCredit(): void {
    for (const slice of this.#rates.values()) slice.credit = Math.min(0, slice.credit);
  }

  /** What is left of a rate, as far as this edge knows; null where it does not share it. */
  leftOfRate(scope: string, resource: RateResource, nowMs: number): number | null {
    const slice = this.#rates.get(rateKey({ scope, resource }));
    if (slice === undefined) return null;
    const refilled = slice.left + (Math.max(0, nowMs - slice.leftAtMs) * slice.perMinute) / WINDOW_MS;
    return Math.max(0, Math.min(slice.perMinute, Math.min(slice.perMinute, refilled) + slice.credit));
  }

  rate(scope: string, resource: RateResource): { readonly left: number; readonly starvedForMs: number | null } | null {
    const slice = this.#rates.get(rateKey({ scope, resource }));
    return slice === undefined ? null : { left: slice.left + slice.credit, starvedForMs: slice.starvedForMs };
  }

  budget(need: Pick<BudgetNeed, "scope" | "period" | "startMs">): {
    readonly spentNanoUsd: bigint;
    /** By all edges, running requests and free slices. */
    readonly reservedNanoUsd: bigint;
    readonly starvedForMs: number | null;
  } | null {
    const slice = this.#budgets.get(budgetKey(need));
    if (slice === undefined) return null;
    const { spent, others, committed, starvedForMs } = slice;
    return { spentNanoUsd: spent, reservedNanoUsd: others + committed, starvedForMs };
  }

  #covers(need: SliceNeed, nowMs: number): boolean {
    if (need.kind === "rate") return this.#rate(need, nowMs).credit + ROUNDING >= need.needed;
    const slice = this.#budget(need, nowMs);
    return slice.committed + need.amountNanoUsd <= slice.held && need.limitNanoUsd > 0n;
  }

  #close(requestId: string, { needs, costNanoUsd }: Taken): void {
    this.#taken.delete(requestId);
    for (const need of needs) {
      const slice = need.kind === "budget" ? this.#budgets.get(budgetKey(need)) : undefined;
      if (slice === undefined) continue;
      slice.committed -= costNanoUsd;
      // It is spent by now: this edge holds it no more.
      slice.held -= costNanoUsd;
      slice.closed += costNanoUsd;
    }
  }

  #rate({ scope, resource, perMinute }: Pick<RateNeed, "scope" | "resource" | "perMinute">, nowMs: number): RateSlice {
    const key = rateKey({ scope, resource });
    const known = this.#rates.get(key);
    if (known !== undefined) {
      known.perMinute = perMinute;
      return known;
    }
    const slice: RateSlice = {
      perMinute,
      credit: 0,
      granted: 0,
      usedAtMs: nowMs,
      waiting: 0,
      left: 0,
      leftAtMs: nowMs,
      starvedForMs: null,
    };
    this.#rates.set(key, slice);
    return slice;
  }

  #budget(need: BudgetNeed, nowMs: number): BudgetSlice {
    const key = budgetKey(need);
    const known = this.#budgets.get(key);
    if (known !== undefined) {
      known.limitNanoUsd = need.limitNanoUsd;
      return known;
    }
    const { scope, period, path, startMs, endMs, limitNanoUsd } = need;
    const nothing = {
      held: 0n,
      committed: 0n,
      granted: 0n,
      waiting: 0n,
      free: 0n,
      spent: 0n,
      others: 0n,
      closed: 0n,
      told: -1n,
    };
    const slice = {
      scope,
      period,
      path,
      startMs,
      endMs,
      limitNanoUsd,
      ...nothing,
      usedAtMs: nowMs,
      starvedForMs: null,
    };
    this.#budgets.set(key, slice);
    return slice;
  }
}

function isRateLow({ credit, granted, starvedForMs }: RateSlice): boolean {
  return starvedForMs === null && granted > 0 && credit < granted / 2;
}

function isBudgetLow({ held, committed, granted, starvedForMs }: BudgetSlice): boolean {
  return starvedForMs === null && granted > 0n && held - committed < granted / 2n;
}

const rateKey = ({ scope, resource }: Pick<RateNeed, "scope" | "resource">): string => `${resource} ${scope}`;
const budgetKey = ({ scope, period, startMs }: Pick<BudgetNeed, "scope" | "period" | "startMs">): string =>
  `${period} ${startMs} ${scope}`;

function splitKey(key: string): [RateResource, string] {
  const place = key.indexOf(" ");
  return [key.slice(0, place) === "tokens" ? "tokens" : "requests", key.slice(place + 1)];
}

const smaller = (one: bigint, other: bigint): bigint => (one < other ? one : other);
const larger = (one: bigint, other: bigint): bigint => (one > other ? one : other);
