import type { BudgetPeriod } from "../ports/limits.ts";

export const DAY_MS = 86_400_000;

/** First moment of the day or month in UTC in which `atMs` lies; 0 for what never ends. */
export function periodStartMs(period: BudgetPeriod, atMs: number): number {
  switch (period) {
    case "day":
      return Math.floor(atMs / DAY_MS) * DAY_MS;
    case "month":
      return monthStartMs(Math.floor(atMs / DAY_MS) * DAY_MS);
    case "total":
      return 0;
    default:
      return period satisfies never;
  }
}

/** The month of the day asked for last: nearly every request is of the same one, and calendars are slow. */
const lastDay = { startMs: NaN, monthStartMs: NaN };

function monthStartMs(dayStartMs: number): number {
  if (dayStartMs !== lastDay.startMs) {
    const day = new Date(dayStartMs);
    lastDay.monthStartMs = Date.UTC(day.getUTCFullYear(), day.getUTCMonth());
    lastDay.startMs = dayStartMs;
  }
  return lastDay.monthStartMs;
}

/** First moment after it; null for what never ends. */
export function periodEndMs(period: BudgetPeriod, atMs: number): number | null {
  if (period === "total") return null;
  if (period === "day") return periodStartMs("day", atMs) + DAY_MS;
  const at = new Date(atMs);
  return Date.UTC(at.getUTCFullYear(), at.getUTCMonth() + 1);
}
