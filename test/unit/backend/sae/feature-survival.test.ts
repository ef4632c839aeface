import { describe, expect, it } from "vitest";
import { type ActivePosition, featureSurvival } from "../../../../backend/sae/feature-survival.ts";

/** Rows of activations by feature, as positions with their active features. */
const positions = (rows: readonly (readonly number[])[], firstToken = 7): ActivePosition[] =>
  rows.map((row, position) => ({
    position,
    token_id: firstToken + position,
    features: row.flatMap((value, index) => (value === 0 ? [] : [{ index, value }])),
  }));

// Columns: follows at half size, silent here, turned round, constant, silent on the reference.
const reference = positions([
  [2, 1, 3, 5, 0],
  [4, 0, 0, 5, 0],
  [0, 2, 1, 5, 0],
]);
const measured = positions([
  [1, 0, 0, 5, 1],
  [2, 0, 3, 5, 0],
  [0, 0, 2, 5, 4],
]);

describe("the survival of features", () => {
  it("counts those that follow the reference, among those that vary there", () => {
    expect(featureSurvival(reference, measured)).toEqual({ compared: 3, survived: 1, share: 1 / 3 });
    expect(featureSurvival(reference, reference)).toEqual({ compared: 3, survived: 3, share: 1 });
  });

  it("is nothing where there is nothing to compare, or another text", () => {
    expect(featureSurvival([], [])).toEqual({ compared: 0, survived: 0, share: null });
    expect(featureSurvival(reference, measured.slice(1))).toBeNull();
    expect(featureSurvival(reference, positions([[1], [1], [1]], 8))).toBeNull();
  });
});
