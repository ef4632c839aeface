import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { BUCKET_MS, FeatureWindows, KEPT_BUCKETS } from "../../backend/engine/monitoring/feature-windows.ts";

const FEATURES = [3, 9];
const THRESHOLD = 4;

/** One row: its time as a step from the row before, and the activation of each feature, 0 for a silent one. */
const rowArbitrary = fc.record({
  stepMs: fc.oneof(fc.nat(1_000), fc.nat(3 * BUCKET_MS), fc.nat(70 * BUCKET_MS)),
  values: fc.tuple(fc.nat(8), fc.nat(8)),
});
interface TimedRow {
  readonly atMs: number;
  readonly values: readonly number[];
}

function sensedOf(values: readonly number[]) {
  const active = values.flatMap((value, place) => (value > 0 ? [[FEATURES[place] ?? 0, value] as const] : []));
  return {
    counts: Int32Array.of(active.length),
    indices: Int32Array.from(active, ([index]) => index),
    values: Float32Array.from(active, ([, value]) => value),
  };
}

/** The figures by their definition, from every row there ever was. */
function byDefinition(rows: readonly TimedRow[], minutes: number, nowMs: number) {
  const bucketOf = (ms: number) => Math.floor(ms / BUCKET_MS);
  const inside = rows.filter(({ atMs }) => bucketOf(atMs) > bucketOf(nowMs) - minutes);
  const features = FEATURES.map((index, place) => {
    const active = inside.map(({ values }) => values[place] ?? 0).filter((value) => value > 0);
    return {
      index,
      count: active.length,
      mean: active.length === 0 ? null : active.reduce((sum, value) => sum + value, 0) / active.length,
      max: active.length === 0 ? null : Math.max(...active),
      density: inside.length === 0 ? null : active.length / inside.length,
      over_threshold: active.filter((value) => value > THRESHOLD).length,
    };
  });
  return { requests: 0, rows: inside.length, features };
}

describe("the rolling statistics of features, for any rows at any times", () => {
  it("are the figures of the rows inside the window, and their minutes are its parts", () => {
    fc.assert(
      fc.property(
        fc.array(rowArbitrary, { maxLength: 60 }),
        fc.integer({ min: 1, max: KEPT_BUCKETS }),
        fc.nat(5 * BUCKET_MS),
        (given, minutes, restMs) => {
          const windows = new FeatureWindows(FEATURES, THRESHOLD);
          const rows: TimedRow[] = [];
          let atMs = 0;
          for (const { stepMs, values } of given) {
            atMs += stepMs;
            rows.push({ atMs, values });
            windows.addRows(sensedOf(values), atMs);
          }
          const nowMs = atMs + restMs;
          const totals = windows.totals(minutes, nowMs);
          expect(totals).toEqual(byDefinition(rows, minutes, nowMs));
          const series = windows.series(minutes, nowMs);
          expect(series.reduce((sum, bucket) => sum + bucket.rows, 0)).toBe(totals.rows);
          expect(series.map(({ start_ms: start }) => start)).toEqual(
            [...new Set(series.map(({ start_ms: start }) => start))].toSorted((a, b) => a - b),
          );
        },
      ),
    );
  });
});
