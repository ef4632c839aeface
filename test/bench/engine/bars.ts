import type { BenchModel } from "./flags.ts";

/** A bound that a figure is held to; `null` where a figure only informs. */
export type Bar = { readonly atLeast: number } | { readonly atMost: number } | null;

/** One line of the result. */
export interface FigureRow {
  readonly figure: string;
  readonly model: BenchModel;
  /** What `value` is, with its unit. */
  readonly measure: string;
  readonly value: number;
  readonly bar: Bar;
  /** What the value was computed from, by name; medians. */
  readonly of: Readonly<Record<string, number>>;
  /** Points of a course over the run. */
  readonly series?: readonly (readonly number[])[];
}

export const BARS = {
  /** Total tokens per second over llama-server's. Of the demo model thread synchronisation decides. */
  throughput: { "85m": { atLeast: 0.95 }, demo: { atLeast: 0.7 } },
  firstToken: { atMost: 1.1 },
  /** Shares that a step becomes slower by. */
  hooksIdle: { atMost: 0.005 },
  steered: { atMost: 0.03 },
  sensesEight: { atMost: 0.03 },
  sensesTop: { atMost: 0.1 },
  /** How many times faster together than one by one, where batching pays. */
  distinctSteerings: { atLeast: 3 },
  /** Bytes that the resident set grows by per request after warm-up; whatever kept a request alive would hold more. */
  memoryPerRequest: { atMost: 1_024 },
} as const;

/** Null where there is no bar. */
export function isMet({ value, bar }: Pick<FigureRow, "value" | "bar">): boolean | null {
  if (bar === null) return null;
  return "atLeast" in bar ? value >= bar.atLeast : value <= bar.atMost;
}

function verdictOf(row: FigureRow): string {
  const met = isMet(row);
  if (met === null) return "";
  return met ? "met" : "MISSED";
}

export function barText(bar: Bar): string {
  if (bar === null) return "–";
  return "atLeast" in bar ? `≥ ${bar.atLeast}` : `≤ ${bar.atMost}`;
}

/** The table for people. */
export function tableOf(rows: readonly FigureRow[]): string {
  const cells = rows.map((row) => [
    row.figure,
    row.model,
    `${rounded(row.value)} ${row.measure}`,
    barText(row.bar),
    verdictOf(row),
    Object.entries(row.of)
      .map(([name, value]) => `${name} ${rounded(value)}`)
      .join(", "),
  ]);
  const table = [["figure", "model", "measured", "bar", "", "from"], ...cells];
  const widths = table[0]?.map((_, column) => Math.max(...table.map((row) => (row[column] ?? "").length))) ?? [];
  return table
    .map((row) =>
      row
        .map((cell, column) => cell.padEnd(widths[column] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** Four significant digits, without an exponent. */
export function rounded(value: number): string {
  return String(Number(value.toPrecision(4)));
}
