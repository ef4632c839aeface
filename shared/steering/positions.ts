import type { SteeringPositions } from "./steering-set.ts";

/** Half open. */
export interface TokenRange {
  readonly start: number;
  readonly end: number;
}

/** Ascending, apart from each other: ranges that touch or overlap become one. */
export function mergedRanges(ranges: readonly TokenRange[]): TokenRange[] {
  const merged: TokenRange[] = [];
  for (const { start, end } of ranges.toSorted((a, b) => a.start - b.start)) {
    const last = merged.at(-1);
    if (last === undefined || start > last.end) merged.push({ start, end });
    else merged[merged.length - 1] = { start: last.start, end: Math.max(last.end, end) };
  }
  return merged;
}

/** How hashes and receipts write positions: `all`, `prompt`, `completion`, or `3-7,9-12` with ends left out. */
export function positionsText(positions: SteeringPositions | null | undefined): string {
  if (positions === null || positions === undefined) return "all";
  if (typeof positions === "string") return positions;
  return mergedRanges([positions].flat())
    .map(({ start, end }) => `${start}-${end}`)
    .join(",");
}
