import { describe, expect, it } from "vitest";
import type { SaeTensors } from "../../backend/native/binding.ts";
import { encodeRow } from "../../backend/sae/encoder.ts";
import { DEMO_F32, NativeSession, nativeAddon, openModel } from "../support/native-harness.ts";

const WIDTH = 37;
const FEATURES = 101;
const ROWS = 24;

/** Uniform in [-1, 1), the same for the same seed. */
function randoms(seed: number): (count: number) => Float32Array {
  let state = seed >>> 0;
  const next = () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state / 2 ** 31 - 1;
  };
  return (count) => Float32Array.from({ length: count }, next);
}

function randomSae(change: Partial<SaeTensors>, width = WIDTH, features = FEATURES): SaeTensors {
  const take = randoms(7);
  return {
    embeddingWidth: width,
    featureCount: features,
    encoderColumns: take(width * features),
    encoderBias: take(features),
    decoderBias: take(width),
    applyDecoderBiasToInput: true,
    activation: "relu",
    threshold: new Float32Array(0),
    ...change,
  };
}

const take = randoms(11);
const SHAPES: [string, Partial<SaeTensors>][] = [
  ["relu", {}],
  ["jumprelu", { activation: "jumprelu", threshold: take(FEATURES) }],
  [
    "gated",
    { activation: "gated", gateBias: take(FEATURES), magnitudeScale: take(FEATURES).map((value) => Math.exp(value)) },
  ],
  ["topk", { activation: "topk", activeCount: 9 }],
];
const NORMALIZATIONS = ["none", "layer_norm", "constant_norm"] as const;

describe.each(SHAPES)("the native %s encoder", (_, change) => {
  it.each(NORMALIZATIONS)("gives the reference's activations with normalisation %s", async (normalization) => {
    const rows = randoms(13)(ROWS * WIDTH).map((value) => value * 3 + 0.5);
    for (const applyDecoderBiasToInput of [true, false]) {
      const tensors = randomSae({ ...change, normalization, applyDecoderBiasToInput });
      const native = (await nativeAddon()).loadSae(tensors);
      const encoded = native.encode(rows);
      let active = 0;
      for (let row = 0; row < ROWS; row++) {
        const expected = encodeRow(tensors, rows.slice(row * WIDTH, (row + 1) * WIDTH));
        for (const [feature, value] of expected.entries()) {
          expect(encoded[row * FEATURES + feature]).toBeCloseTo(value, 4);
          if (value > 0) active++;
        }
      }
      expect(active).toBeGreaterThan(ROWS);
      native.dispose();
    }
  });
});

describe("sensing with a topk SAE", () => {
  it("reports the same values whether some features, the largest or all are asked for", async () => {
    const model = await openModel(DEMO_F32);
    const session = await NativeSession.open(model);
    const tensors = randomSae({ activation: "topk", activeCount: 5, normalization: "layer_norm" }, 128, 64);
    const sae = (await nativeAddon()).loadSae(tensors);
    const everywhere = { layer: 1, fromPosition: 0, toPosition: -1, readPoint: "pre_steering" as const };
    const asked = Int32Array.from({ length: 32 }, (_, i) => 2 * i);
    const outcome = await session.run({
      tokens: model.tokenize("The old sailor walked to the harbour", true, true),
      maxTokens: 1,
      sensing: [
        { ...everywhere, sae, features: null, topK: 64 },
        { ...everywhere, sae, features: null, topK: 2 },
        { ...everywhere, sae, features: asked, topK: 64 },
      ],
      capture: [everywhere],
    });
    const rows = [...outcome.captured].filter(([place]) => place.startsWith("0:"));
    expect(rows.length).toBeGreaterThan(3);
    for (const [place, row] of rows) {
      const position = place.slice(2);
      const expected = new Map([...encodeRow(tensors, row).entries()].filter(([, value]) => value > 0));
      expect(expected.size).toBe(5);
      const seen = (plan: number) => outcome.sensed.get(`${plan}:${position}`) ?? new Map<number, number>();
      expect([...seen(0).keys()].toSorted((a, b) => a - b)).toEqual([...expected.keys()]);
      for (const [index, value] of expected) expect(seen(0).get(index)).toBeCloseTo(value, 4);
      expect([...seen(1)]).toEqual([...seen(0)].slice(0, 2));
      const subset = [...expected.keys()].filter((index) => asked.includes(index));
      expect([...seen(2).keys()]).toEqual(subset);
      for (const index of subset) expect(seen(2).get(index)).toBe(seen(0).get(index));
    }
    sae.dispose();
    await session.context.dispose();
    await model.dispose();
  });

  it("refuses tensors that do not fit their activation", async () => {
    const addon = await nativeAddon();
    expect(() => addon.loadSae(randomSae({ activation: "topk", activeCount: 102 }))).toThrow("activeCount");
    expect(() =>
      addon.loadSae(
        randomSae({ activation: "gated", gateBias: new Float32Array(3), magnitudeScale: new Float32Array(FEATURES) }),
      ),
    ).toThrow("gateBias");
  });
});
