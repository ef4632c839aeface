import type { BudgetPeriod } from "../ports/limits.ts";
import { DAY_MS, periodStartMs } from "./period.ts";

const PERIODS: readonly BudgetPeriod[] = ["day", "month", "total"];
/** Of each kind: the one that runs and those before it, whose requests may still end. */
const KEPT_PERIODS = 3;

interface PeriodMoney {
  readonly startMs: number;
  spentNanoUsd: bigint;
  reservedNanoUsd: bigint;
}

export interface MoneyState {
  readonly spentNanoUsd: bigint;
  readonly reservedNanoUsd: bigint;
}

/**
 * What one scope spent and holds in reserve, by day and month in UTC and in all. A request belongs to the periods in
 * which it was received, however late it ends; `atMs` is that moment, in Unix milliseconds.
 */
export class ScopeMoney {
  readonly #periods: Readonly<Record<BudgetPeriod, PeriodMoney[]>> = { day: [], month: [], total: [] };
  /** Those of the day that was asked for last, which nearly every request is of. */
  #lastDay: { readonly number: number; readonly money: readonly PeriodMoney[] } | null = null;

  of(period: BudgetPeriod, atMs: number): MoneyState {
    const startMs = periodStartMs(period, atMs);
    return this.#periods[period].find((one) => one.startMs === startMs) ?? { spentNanoUsd: 0n, reservedNanoUsd: 0n };
  }

  reserve(atMs: number, nanoUsd: bigint): void {
    for (const money of this.#at(atMs)) money.reservedNanoUsd += nanoUsd;
  }

  release(atMs: number, nanoUsd: bigint): void {
    for (const money of this.#at(atMs)) money.reservedNanoUsd -= nanoUsd;
  }

  /** It may be negative: a correction. */
  spend(atMs: number, nanoUsd: bigint): void {
    for (const money of this.#at(atMs)) money.spentNanoUsd += nanoUsd;
  }

  #at(atMs: number): readonly PeriodMoney[] {
    const number = Math.floor(atMs / DAY_MS);
    if (this.#lastDay?.number !== number) this.#lastDay = { number, money: this.#periodsAt(atMs) };
    return this.#lastDay.money;
  }

  #periodsAt(atMs: number): readonly PeriodMoney[] {
    return PERIODS.map((period) => {
      const startMs = periodStartMs(period, atMs);
      const kept = this.#periods[period];
      const known = kept.find((one) => one.startMs === startMs);
      if (known !== undefined) return known;
      const made = { startMs, spentNanoUsd: 0n, reservedNanoUsd: 0n };
      kept.push(made);
      kept.sort((one, other) => one.startMs - other.startMs);
      // Money of a period that is long over limits nothing any more; what is still reserved must be released there.
      const oldest = kept[0];
      if (kept.length > KEPT_PERIODS && oldest?.reservedNanoUsd === 0n && oldest !== made) kept.shift();
      return made;
    });
  }
}
