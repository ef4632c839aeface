/** The middle value; of an even number the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  if (values.length === 0) throw new Error("the median of nothing");
  const sorted = values.toSorted((a, b) => a - b);
  const upper = sorted[Math.floor(sorted.length / 2)] ?? 0;
  const lower = sorted[Math.floor((sorted.length - 1) / 2)] ?? 0;
  return (lower + upper) / 2;
}

export interface Point {
  readonly x: number;
  readonly y: number;
}

/** Theil and Sen's slope: the median of the slopes of all pairs, which a few outliers do not move. */
export function slope(points: readonly Point[]): number {
  const slopes: number[] = [];
  for (const [i, a] of points.entries()) {
    for (const b of points.slice(i + 1)) if (b.x !== a.x) slopes.push((b.y - a.y) / (b.x - a.x));
  }
  return slopes.length === 0 ? 0 : median(slopes);
}

/** Names in turn, forwards and backwards, so that neither side always runs on a machine warmed by the other. */
export function alternating<Name>(names: readonly Name[], round: number): readonly Name[] {
  return round % 2 === 0 ? names : names.toReversed();
}
