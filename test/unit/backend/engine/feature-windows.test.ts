import { describe, expect, it } from "vitest";
import { BUCKET_MS, FeatureWindows, KEPT_BUCKETS } from "../../../../backend/engine/monitoring/feature-windows.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const MINUTE = BUCKET_MS;
/** One row for each list of (feature, value) pairs. */
function rows(...lists: (readonly (readonly [number, number])[])[]) {
  const entries = lists.flat();
  return {
    counts: Int32Array.from(lists, ({ length }) => length),
    indices: Int32Array.from(entries, ([index]) => index),
    values: Float32Array.from(entries, ([, value]) => value),
  };
}

describe("the rolling statistics of features", () => {
  it("are count, mean and largest of active rows, and their share of all rows", () => {
    const windows = new FeatureWindows([7, 2], 3);
    windows.addRequest(0);
    windows.addRows(
      rows(
        [[7, 2]],
        [],
        [
          [7, 4],
          [2, 1],
        ],
      ),
      0,
    );
    windows.addRows(rows([[7, 6]]), 10);
    expect(windows.totals(60, 10)).toEqual({
      requests: 1,
      rows: 4,
      features: [
        { index: 7, count: 3, mean: 4, max: 6, density: 0.75, over_threshold: 2 },
        { index: 2, count: 1, mean: 1, max: 1, density: 0.25, over_threshold: 0 },
      ],
    });
  });

  it("say nothing where nothing was, and nothing of features that are not theirs", () => {
    const windows = new FeatureWindows([7], null);
    const never = { index: 7, count: 0, mean: null, max: null, density: null, over_threshold: 0 };
    expect(windows.totals(60, 0)).toEqual({ requests: 0, rows: 0, features: [never] });
    windows.addRows(rows([[8, 5]], [[7, 0]]), 0);
    expect(windows.totals(60, 0)).toEqual({ requests: 0, rows: 2, features: [{ ...never, density: 0 }] });
  });

  it("roll: a window has its newest minutes, and what is older than an hour is forgotten", () => {
    const clock = new ManualClock(10 * MINUTE);
    const windows = new FeatureWindows([7], null);
    for (const value of [1, 2, 3]) {
      windows.addRows(rows([[7, value]]), clock.nowMs());
      clock.advance(MINUTE);
    }
    const last = clock.nowMs() - MINUTE;
    expect(windows.totals(60, last)).toMatchObject({ rows: 3, features: [{ mean: 2, max: 3 }] });
    expect(windows.totals(2, last)).toMatchObject({ rows: 2, features: [{ mean: 2.5, max: 3 }] });
    expect(windows.totals(1, last)).toMatchObject({ rows: 1, features: [{ mean: 3, max: 3 }] });
    expect(windows.totals(1, clock.nowMs())).toMatchObject({ rows: 0 });
    clock.advance((KEPT_BUCKETS - 2) * MINUTE);
    expect(windows.totals(60, clock.nowMs())).toMatchObject({ rows: 1, features: [{ max: 3 }] });
    clock.advance(MINUTE);
    expect(windows.totals(60, clock.nowMs())).toMatchObject({ rows: 0 });
  });

  it("are told minute by minute, oldest first, without those in which nothing ran", () => {
    const windows = new FeatureWindows([7], 1);
    windows.addRows(rows([[7, 1]], []), 5 * MINUTE);
    windows.addRows(rows([[7, 3]]), 8 * MINUTE - 1);
    windows.addRows(rows([[7, 5]]), 8 * MINUTE);
    expect(
      windows
        .series(60, 8 * MINUTE)
        .map(({ start_ms: start, rows: count, features }) => [start / MINUTE, count, features[0]]),
    ).toEqual([
      [5, 2, { index: 7, count: 1, mean: 1, max: 1, density: 0.5, over_threshold: 0 }],
      [7, 1, { index: 7, count: 1, mean: 3, max: 3, density: 1, over_threshold: 1 }],
      [8, 1, { index: 7, count: 1, mean: 5, max: 5, density: 1, over_threshold: 1 }],
    ]);
  });

  it("keep an hour of buckets, however long they are filled", () => {
    const windows = new FeatureWindows([7], null);
    for (let minute = 0; minute < 500; minute += 1) windows.addRows(rows([[7, 1]]), minute * MINUTE);
    expect(windows.series(Infinity, 499 * MINUTE)).toHaveLength(KEPT_BUCKETS);
    // As seen from the first minute, what was kept of later ones would show.
    expect(windows.series(Infinity, 0)).toHaveLength(KEPT_BUCKETS);
  });
});
