import { describe, expect, it } from "vitest";
import type { SaeTensors } from "../../../../backend/native/binding.ts";
import { encodeRow } from "../../../../backend/sae/encoder.ts";
import { FidelityMeter } from "../../../../backend/sae/fidelity.ts";

/** Features 0 and 1 read and write x, features 2 and 3 read and write -x: what it explains of y depends on `share`. */
function dictionary(share: number, change: Partial<SaeTensors> = {}) {
  const matrix = Float32Array.of(1, 0, 0, 1, -1, 0, 0, -1);
  const tensors: SaeTensors = {
    embeddingWidth: 2,
    featureCount: 4,
    encoderColumns: matrix,
    encoderBias: new Float32Array(4),
    decoderBias: new Float32Array(2),
    applyDecoderBiasToInput: false,
    activation: "relu",
    threshold: new Float32Array(0),
    ...change,
  };
  const decoderRows = Float32Array.of(1, 0, 0, share, -1, 0, 0, -share);
  return { tensors, decoderRows };
}

function measured(share: number, rows: readonly number[][], change?: Partial<SaeTensors>) {
  const { tensors, decoderRows } = dictionary(share, change);
  const meter = new FidelityMeter(tensors, decoderRows);
  for (const row of rows) meter.add(Float32Array.from(row), encodeRow(tensors, Float32Array.from(row)));
  return meter.result();
}

describe("the fidelity of an SAE", () => {
  const rows = [
    [1, 2],
    [3, 2],
    [1, -2],
    [3, -2],
  ];

  it("is 1 for a perfect one, by hand for one that explains half of one dimension", () => {
    expect(measured(1, rows)).toEqual({ explained_variance: 1, l0: 2, dead: 1, tokens: 4 });
    // Means 2 and 0, so the total is 4·1 + 4·4 = 20; half of y stays unexplained: 4·1.
    expect(measured(0.5, rows)?.explained_variance).toBeCloseTo(1 - 4 / 20, 10);
  });

  it("is 0 for one that says the mean and less for one that says worse", () => {
    const silent = { encoderBias: Float32Array.of(-9, -9, -9, -9) };
    const mean = { ...silent, decoderBias: Float32Array.of(2, 0) };
    expect(measured(1, rows, mean)).toMatchObject({ explained_variance: 0, l0: 0, dead: 4 });
    expect(measured(1, rows, silent)?.explained_variance).toBeLessThan(0);
  });

  it("is in residual units when the rows are normalised", () => {
    const found = measured(1, rows, { normalization: "constant_norm" });
    expect(found?.explained_variance).toBeCloseTo(1, 10);
  });

  it("has no share of variance where there is none, and nothing at all before the first row", () => {
    expect(measured(1, [[5, 5]])).toMatchObject({ explained_variance: null, tokens: 1 });
    expect(measured(1, [])).toBeNull();
  });
});
