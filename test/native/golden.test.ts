import { readFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import type { NativeModel } from "../../backend/native/binding.ts";
import { DEMO_F32, DEMO_Q8, NativeSession, nativeAddon, openModel, repositoryFile } from "../support/native-harness.ts";
import { demoSae } from "../support/sae-fixture.ts";

const goldenSchema = z.object({
  cases: z.array(
    z.object({
      text: z.string(),
      token_ids: z.array(z.number()),
      residual: z.array(z.array(z.number())),
      features: z.array(z.array(z.tuple([z.number(), z.number()]))),
      argmax_next: z.array(z.number()),
      greedy_24: z.array(z.number()),
    }),
  ),
});
const golden = goldenSchema.parse(
  JSON.parse(readFileSync(repositoryFile("test/native/fixtures/golden-l1.json"), "utf8")),
);

function cosine(a: Float32Array, b: readonly number[]): number {
  let dot = 0;
  let squaresA = 0;
  let squaresB = 0;
  for (const [i, x] of a.entries()) {
    const y = b[i] ?? 0;
    dot += x * y;
    squaresA += x * x;
    squaresB += y * y;
  }
  return dot / Math.sqrt(squaresA * squaresB);
}

describe.each([
  { name: "f32", path: DEMO_F32, leastCosine: 0.9999 },
  { name: "q8_0", path: DEMO_Q8, leastCosine: 0.999 },
])("the $name demo model against values from PyTorch", ({ name, path, leastCosine }) => {
  let model: NativeModel;
  let session: NativeSession;
  beforeAll(async () => {
    model = await openModel(path);
    session = await NativeSession.open(model, { kvType: name === "f32" ? "f32" : "f16", threads: 2 });
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
  });

  it("splits the texts into the same tokens", () => {
    for (const { text, token_ids } of golden.cases) {
      expect([...model.tokenize(text, true, true)]).toEqual(token_ids);
    }
  });

  it("has the same residual rows after block 1", async () => {
    for (const { token_ids, residual } of golden.cases) {
      const outcome = await session.run({
        tokens: Int32Array.from(token_ids),
        maxTokens: 1,
        capture: [{ layer: 1, fromPosition: 0, toPosition: -1, readPoint: "pre_steering" }],
      });
      expect(outcome.captured.size).toBe(token_ids.length);
      for (const [position, row] of residual.entries()) {
        const captured = outcome.captured.get(`0:${position}`) ?? new Float32Array();
        expect(cosine(captured, row)).toBeGreaterThanOrEqual(leastCosine);
      }
    }
  });

  if (name !== "f32") return;

  it("has the same active features at every token", async () => {
    const sae = (await nativeAddon()).loadSae(demoSae("demo-l1"));
    for (const { token_ids, features } of golden.cases) {
      const outcome = await session.run({
        tokens: Int32Array.from(token_ids),
        maxTokens: 1,
        sensing: [
          { sae, layer: 1, fromPosition: 0, toPosition: -1, readPoint: "pre_steering", features: null, topK: 512 },
        ],
      });
      for (const [position, expected] of features.entries()) {
        const active = outcome.sensed.get(`0:${position}`) ?? new Map<number, number>();
        expect([...active.keys()].toSorted((a, b) => a - b)).toEqual(expected.map(([index]) => index));
        for (const [index, value] of expected) expect(active.get(index)).toBeCloseTo(value, 1);
      }
    }
    sae.dispose();
  });

  it("writes the same 24 greedy tokens", async () => {
    for (const { token_ids, greedy_24 } of golden.cases) {
      const outcome = await session.run({
        tokens: Int32Array.from(token_ids),
        maxTokens: 24,
        ignoreEndOfGeneration: true,
      });
      expect(outcome.tokens).toEqual(greedy_24);
      expect(outcome.finished.reason).toBe("length");
    }
  });
});
