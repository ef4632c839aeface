import { describe, expect, it } from "vitest";
import { decodeRow, encodeRow, outputScaleOf } from "../../../../backend/sae/encoder.ts";
import { readSaeFolder } from "../../../../backend/sae/read-sae-folder.ts";
import {
  filesFolder,
  saeFolder,
  safetensorsBytes,
  TINY_CONFIG,
  TINY_TENSORS,
  type FixtureTensor,
} from "../../../support/safetensors-fixture.ts";

const { threshold: _, ...standard } = TINY_TENSORS;
const { b_enc: _bias, ...matrices } = standard;
const vector = (...values: number[]): FixtureTensor => ({ shape: [values.length], values });

async function tiny(change: object, tensors: Readonly<Record<string, FixtureTensor>> = TINY_TENSORS) {
  return readSaeFolder(saeFolder({ ...TINY_CONFIG, ...change }, safetensorsBytes(tensors)));
}

function closeTo(actual: ArrayLike<number>, expected: readonly number[]) {
  expect(actual).toHaveLength(expected.length);
  expected.forEach((value, i) => expect(actual[i]).toBeCloseTo(value, 4));
}

// Where biases, norms and scales go, per rule. Columns of W_enc: (1, 0), (0, 1), (2, -1). Decoder rows: (1, 2), (3, 4), (5, 6). b_enc (0, 0.5, 0), b_dec (1, 1).
describe("activations by hand (C126)", () => {
  it("of a gated SAE: the gate has its own bias, the magnitude its own scale", async () => {
    const gated = {
      ...matrices,
      b_gate: vector(0, 0, -10),
      r_mag: vector(Math.LN2, 0, 0),
      b_mag: vector(0, 1, 0),
    };
    const sae = await tiny({ architecture: "gated" }, gated);
    // x - b_dec = (2, 1): products 2, 1, 3; the third gate is 3 - 10.
    closeTo(encodeRow(sae.tensors, Float32Array.of(3, 2)), [4, 2, 0]);
    expect(sae.config.architecture).toBe("gated");
  });

  it("of a topk SAE: only the k largest stay", async () => {
    // x - b_dec = (2, 1): p = 2, 1.5, 3.
    const two = await tiny({ architecture: "topk", k: 2 }, standard);
    expect([...encodeRow(two.tensors, Float32Array.of(3, 2))]).toEqual([2, 0, 3]);
    const old = await tiny({ activation_fn_str: "topk", activation_fn_kwargs: { k: 1 }, architecture: null }, standard);
    closeTo(encodeRow(old.tensors, Float32Array.of(3, 2)), [0, 0, 3]);
    // Nothing negative is ever kept to fill the number.
    closeTo(encodeRow(two.tensors, Float32Array.of(0, 2)), [0, 1.5, 0]);
  });

  it("of a topk SAE that chooses by decoder norm: another choice, the same reconstruction as unscaled", async () => {
    const plain = await tiny({ architecture: "topk", k: 1 }, standard);
    // x - b_dec = (2, 2): p = 2, 2.5, 2; with the norms √5, 5, √61 they are 4.47, 12.5, 15.62.
    closeTo(encodeRow(plain.tensors, Float32Array.of(3, 3)), [0, 2.5, 0]);
    const rescaled = await tiny({ architecture: "topk", k: 1, rescale_acts_by_decoder_norm: true }, standard);
    const activations = encodeRow(rescaled.tensors, Float32Array.of(3, 3));
    closeTo(activations, [0, 0, 2 * Math.sqrt(61)]);
    closeTo(decodeRow(rescaled.tensors, rescaled.decoderRows, activations, Float32Array.of(3, 3)), [11, 13]);
    expect(rescaled.folds).toEqual(["decoder_norm"]);
    expect(Math.hypot(rescaled.decoderRows[4] ?? 0, rescaled.decoderRows[5] ?? 0)).toBeCloseTo(1, 6);
  });

  it("with layer_norm: unbiased deviation, epsilon on the way in only", async () => {
    const { tensors, decoderRows } = await tiny({ normalize_activations: "layer_norm", apply_b_dec_to_input: false });
    const row = Float32Array.of(3, 1);
    // Mean 2, deviation √2, so (a, -a) with a = 1 / (√2 + 1e-5) = 0.7071: p = a, 0.5 - a, 3a.
    const a = 1 / (Math.SQRT2 + 1e-5);
    const activations = encodeRow(tensors, row);
    closeTo(activations, [a, 0, 3 * a]);
    // (a·(1, 2) + 3a·(5, 6) + (1, 1)) · √2 + 2.
    closeTo(decodeRow(tensors, decoderRows, activations, row), [
      (16 * a + 1) * Math.SQRT2 + 2,
      (20 * a + 1) * Math.SQRT2 + 2,
    ]);
    expect(outputScaleOf(tensors, row)).toBeCloseTo(Math.SQRT2, 6);
  });

  it("with constant_norm_rescale: the row's length becomes √d, and is given back", async () => {
    const change = { normalize_activations: "constant_norm_rescale", apply_b_dec_to_input: false };
    const { tensors, decoderRows } = await tiny(change);
    const row = Float32Array.of(3, 4);
    // √2/5 · (3, 4) = (0.8485, 1.1314): p = 0.8485, 1.6314, 0.5657.
    const activations = encodeRow(tensors, row);
    closeTo(activations, [0.848528, 1.631371, 0.565685]);
    const sum = [0.848528 + 4.894113 + 2.828427 + 1, 1.697056 + 6.525483 + 3.394113 + 1];
    closeTo(
      decodeRow(tensors, decoderRows, activations, row),
      sum.map((value) => (value * 5) / Math.SQRT2),
    );
    expect(outputScaleOf(tensors, row)).toBeCloseTo(5 / Math.SQRT2, 6);
    closeTo(encodeRow(tensors, Float32Array.of(0, 0)), [0, 0, 0]);
  });

  it("with the decoder bias subtracted after normalising, or not at all", async () => {
    const change = { normalize_activations: "constant_norm_rescale" };
    const { tensors } = await tiny(change);
    // (0.8485, 1.1314) - (1, 1) = (-0.1515, 0.1314): p = -0.15, 0.6314, -0.43.
    const [none, some, nothing] = encodeRow(tensors, Float32Array.of(3, 4));
    expect([none, nothing]).toEqual([0, 0]);
    expect(some).toBeCloseTo(0.631371, 4);
  });

  it("with a trained factor per feature: it belongs to the decoder row", async () => {
    const scaled = { ...TINY_TENSORS, scaling_factor: vector(1, 1, 2) };
    const sae = await tiny({ finetuning_scaling_factor: true }, scaled);
    closeTo(encodeRow(sae.tensors, Float32Array.of(3, 1)), [2, 0, 4]);
    closeTo(sae.decoderRows, [1, 2, 3, 4, 10, 12]);
    expect(sae.folds).toEqual(["scaling_factor"]);
    await expect(tiny({ finetuning_scaling_factor: false }, scaled)).rejects.toThrow("finetuning_scaling_factor false");
  });
});

describe("the average norm that a dictionary was trained with (C125)", () => {
  const SCALE = 2.5;
  const BIAS = [0.5, -0.5, 0.25, 0];
  const vectors = [
    [1, -1, 2, 0],
    [0, 0, 0, 0],
    [0.2, -0.2, 0.1, 3],
    [-1, 1, -2, 0.5],
    [4, 3, 2, 1],
    [-4, -3, -2, -1],
    [0.5, 0.5, 0.5, 0.5],
    [10, 0, -10, 0],
    [1e-3, -1e-3, 2e-3, 0],
    [0.1, 0.7, -0.3, 0.9],
  ];
  const eye = (sign: number) =>
    BIAS.flatMap((_value, row) => BIAS.map((_other, column) => (row === column ? sign : 0)));
  // Features 0 to 3 read +x, features 4 to 7 read -x; each writes what it reads, so every reconstruction is exact.
  const perfect = {
    W_enc: { shape: [8, 4], values: [...eye(1), ...eye(-1)] },
    W_dec: { shape: [8, 4], values: [...eye(1), ...eye(-1)] },
    b_enc: vector(0, 0, 0, 0, 0, 0, 0, 0),
    b_dec: vector(...BIAS),
  };
  const config = {
    architecture: "standard",
    d_in: 4,
    d_sae: 8,
    normalize_activations: "expected_average_only_in",
    metadata: { hook_name: "blocks.0.hook_resid_post", sae_lens_version: "6.2.0" },
  };
  const read = (scaler: unknown, change: object = {}) =>
    readSaeFolder(
      filesFolder({
        "cfg.json": JSON.stringify({ ...config, ...change }),
        "sae_weights.safetensors": safetensorsBytes(perfect),
        ...(scaler === null ? {} : { "activation_scaler.json": JSON.stringify(scaler) }),
      }),
    );

  it("is folded into matrices and decoder bias: encoder and reconstruction stay what they were", async () => {
    const unfolded = await read(null);
    const folded = await read({ scaling_factor: SCALE });
    expect(folded.folds).toEqual(["input_scale 2.5"]);
    for (const values of vectors) {
      const row = Float32Array.from(values);
      const activations = encodeRow(folded.tensors, row);
      const byHand = [1, -1].flatMap((sign) =>
        values.map((value, i) => Math.max(0, sign * (SCALE * value - (BIAS[i] ?? 0)))),
      );
      const before = encodeRow(
        unfolded.tensors,
        row.map((value) => value * SCALE),
      );
      byHand.forEach((value, i) => {
        expect(activations[i]).toBeCloseTo(value, 5);
        expect(before[i]).toBeCloseTo(value, 5);
      });
      const back = decodeRow(folded.tensors, folded.decoderRows, activations, row);
      values.forEach((value, i) => expect(back[i]).toBeCloseTo(value, 5));
    }
  });

  it("is taken as folded already where no factor is kept apart", async () => {
    for (const scaler of [null, { scaling_factor: null }]) expect((await read(scaler)).folds).toEqual([]);
  });

  it("is refused where the configuration says that there is none, or where it is no factor", async () => {
    await expect(read({ scaling_factor: 2 }, { normalize_activations: "none" })).rejects.toThrow("holds a factor");
    await expect(read({ scaling_factor: -1 })).rejects.toThrow("no positive scaling_factor");
  });

  it("changes the digest: an SAE that is scaled is another one", async () => {
    const digests = await Promise.all([read(null), read({ scaling_factor: 2 }), read({ scaling_factor: 3 })]);
    expect(new Set(digests.map(({ digest }) => digest)).size).toBe(3);
  });
});
