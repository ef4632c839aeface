import { describe, expect, it } from "vitest";
import { measureFidelity } from "../../../../backend/inspect/measure.ts";
import type { SaeTensors } from "../../../../backend/native/binding.ts";
import { BOS, ScriptedModel } from "../../../support/scripted-native.ts";

const identity = Float32Array.of(1, 0, 0, 1, -1, 0, 0, -1);
const tensors: SaeTensors = {
  embeddingWidth: 2,
  featureCount: 4,
  encoderColumns: identity,
  encoderBias: new Float32Array(4),
  decoderBias: new Float32Array(2),
  applyDecoderBiasToInput: false,
  activation: "relu",
  threshold: new Float32Array(0),
};

async function measured(tokens: readonly number[]) {
  const model = new ScriptedModel();
  const positions: number[] = [];
  const found = await measureFidelity(
    {
      // The row at position p is (p + 1, 0), the first one an outlier.
      reader: {
        rows: (given) => Promise.resolve(Array.from(given, (_, p) => Float32Array.of(p === 0 ? 900 : p + 1, 0))),
      },
      model,
      files: {
        config: {
          format: "saelens",
          architecture: "standard",
          embeddingWidth: 2,
          featureCount: 4,
          hookPoint: null,
          layer: 1,
          modelName: null,
          contextTokens: null,
        },
        tensors,
        decoderRows: identity,
        folds: [],
        digest: "d",
      },
      native: {
        featureCount: 4,
        embeddingWidth: 2,
        encode: (rows) => {
          // What the identity gives; a first row of 900 is encoded as nothing, which no mean would explain.
          const out = new Float32Array(rows.length * 2);
          for (let row = 0; row < rows.length / 2; row += 1) {
            const value = rows[row * 2] ?? 0;
            out[row * 4] = value === 900 ? 0 : value;
          }
          return out;
        },
        dispose: () => undefined,
      },
      layer: 1,
    },
    [Int32Array.from(tokens)],
    ({ position }) => positions.push(position),
  );
  return { found, positions };
}

describe("a measurement", () => {
  it("leaves the row of a begin-of-text token in front out of the figures, and tells of it", async () => {
    const { found, positions } = await measured([BOS, 65, 66, 67]);
    expect(found).toEqual({ explained_variance: 1, l0: 1, dead: 3, tokens: 3 });
    expect(positions).toEqual([0, 1, 2, 3]);
  });

  it("counts every row of a text that begins otherwise, and such a token further on", async () => {
    expect((await measured([64, 65, 66, 67])).found?.explained_variance).toBeLessThan(0.1);
    expect((await measured([BOS, 65, BOS, 67])).found?.tokens).toBe(3);
  });

  it("takes many rows in parts and loses none", async () => {
    const { found, positions } = await measured([BOS, ...Array.from({ length: 49 }, (_, i) => i)]);
    expect(found?.tokens).toBe(49);
    expect(positions).toEqual([...Array(50).keys()]);
  });
});
