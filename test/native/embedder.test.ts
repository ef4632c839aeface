import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeEmbedder, NativeModel } from "../../backend/native/binding.ts";
import { DEMO_F32, openModel } from "../support/native-harness.ts";

function largestDifference(a: Float32Array, b: Float32Array): number {
  return Math.max(...a.map((value, i) => Math.abs(value - (b[i] ?? Number.NaN))));
}

describe("an embedder", () => {
  let model: NativeModel;
  let embedder: NativeEmbedder;
  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    embedder = await model.createEmbedder({ contextLength: 64, threads: 1, pooling: "mean" });
  });
  afterAll(async () => {
    await embedder.dispose();
    await model.dispose();
  });

  const tokens = (text: string): Int32Array => model.tokenize(text, true, false);

  it("gives one vector of the model's width per input", async () => {
    const [vector, ...others] = await embedder.embed([tokens("a sailor on the beach")]);
    expect(others).toEqual([]);
    expect(vector?.length).toBe(128);
    expect(vector?.every((value) => Number.isFinite(value))).toBe(true);
  });

  it("gives many inputs in one call the vectors they get alone, in order", async () => {
    const texts = Array.from({ length: 40 }, (_, i) => `story ${i} about the sea${" and the snow".repeat(i % 7)}`);
    const together = await embedder.embed(texts.map(tokens));
    for (const [i, text] of texts.entries()) {
      const [alone = new Float32Array()] = await embedder.embed([tokens(text)]);
      expect(largestDifference(together[i] ?? new Float32Array(), alone)).toBeLessThan(1e-3);
    }
    expect(largestDifference(together[0] ?? new Float32Array(), together[1] ?? new Float32Array())).toBeGreaterThan(
      0.01,
    );
  });

  it("takes calls side by side", async () => {
    const calls = await Promise.all(Array.from({ length: 6 }, () => embedder.embed([tokens("snow")])));
    for (const [vector] of calls) expect(vector).toEqual(calls[0]?.[0]);
  });

  it("refuses inputs that are empty or too long", async () => {
    await expect(async () => embedder.embed([new Int32Array()])).rejects.toMatchObject({ code: "invalid_argument" });
    await expect(async () => embedder.embed([new Int32Array(65)])).rejects.toMatchObject({ code: "invalid_argument" });
    expect(await embedder.embed([])).toEqual([]);
  });

  it("keeps the model from being disposed while it is open, and says so after it is closed", async () => {
    const other = await model.createEmbedder({ contextLength: 8, threads: 1, pooling: "last" });
    await expect(async () => model.dispose()).rejects.toMatchObject({ code: "invalid_argument" });
    await other.dispose();
    await other.dispose();
    await expect(async () => other.embed([tokens("x")])).rejects.toMatchObject({ code: "disposed" });
  });
});
