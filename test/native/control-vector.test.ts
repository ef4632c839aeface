import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { NativeModel, ResidualEdit } from "../../backend/native/binding.ts";
import { NativeSession, openModel } from "../support/native-harness.ts";
import { FIXTURE_SHAPE, randomModel, type FixtureArchitecture } from "../support/random-model.ts";

const { layers, width } = FIXTURE_SHAPE;
const TOKENS = Int32Array.from({ length: 20 }, (_, i) => (i * 37 + 11) % 250);
const MAX_TOKENS = 8;

/** A direction per layer; small, so that the answer still depends on the tokens. */
const vectorOf = (layer: number): Float32Array =>
  Float32Array.from({ length: width }, (_, i) => 0.4 * Math.sin(1 + layer * 7 + i));

describe("a uniform edit against llama.cpp's own control vector", () => {
  const folder = mkdtempSync(join(tmpdir(), "steerage-control-"));
  afterAll(() => rmSync(folder, { recursive: true }));

  async function open(architecture: FixtureArchitecture): Promise<NativeModel> {
    const path = join(folder, `${architecture}.gguf`);
    writeFileSync(path, randomModel(architecture, 31));
    return await openModel(path);
  }

  async function answer(model: NativeModel, edits: ResidualEdit[], controlVector: Float32Array | null) {
    const session = await NativeSession.open(model, { controlVector });
    const everywhere = { fromPosition: 0, toPosition: -1, readPoint: "post_steering" as const };
    const capture = Array.from({ length: layers }, (_, layer) => ({ layer, ...everywhere }));
    const wish = { tokens: TOKENS, maxTokens: MAX_TOKENS, ignoreEndOfGeneration: true, logprobs: 5 };
    const outcome = await session.run({ ...wish, edits, capture });
    await session.context.dispose();
    return outcome;
  }

  it.each(["llama", "qwen2", "gemma2", "gpt2"] as const)(
    "%s: rows of every layer and answers are equal",
    async (name) => {
      const model = await open(name);
      // llama.cpp has no control vector for the first layer.
      const steered = Array.from({ length: layers - 1 }, (_, place) => place + 1);
      const edits = steered.map((layer) => ({ layer, fromPosition: 0, toPosition: -1, vector: vectorOf(layer) }));
      const hooked = await answer(model, edits, null);
      const oracle = await answer(model, [], Float32Array.from(steered.flatMap((layer) => [...vectorOf(layer)])));
      const plain = await answer(model, [], null);
      await model.dispose();

      expect(hooked.captured.size).toBe(layers * (TOKENS.length + MAX_TOKENS - 1));
      for (const [place, row] of hooked.captured) {
        const expected = oracle.captured.get(place) ?? new Float32Array();
        const furthest = Math.max(...row.map((value, i) => Math.abs(value - (expected[i] ?? Number.NaN))));
        expect(furthest).toBeLessThanOrEqual(1e-4 * Math.max(1, ...expected.map(Math.abs)));
      }
      expect(hooked.tokens).toEqual(oracle.tokens);
      hooked.logprobs.forEach(({ logprob }, at) => expect(logprob).toBeCloseTo(oracle.logprobs[at]?.logprob ?? 0, 3));
      const lastLayer = `${layers - 1}:${TOKENS.length - 1}`;
      expect(oracle.captured.get(lastLayer)).not.toEqual(plain.captured.get(lastLayer));
    },
  );

  it("refuses a vector of another length", async () => {
    const model = await open("llama");
    await expect(
      async () =>
        await model.createContext({
          sequenceCount: 1,
          cellCount: 64,
          batchTokens: 8,
          threads: 1,
          flashAttention: true,
          kvType: "f16",
          controlVector: new Float32Array(width),
          onStep: () => undefined,
        }),
    ).rejects.toThrow(expect.objectContaining({ code: "invalid_argument" }));
    await model.dispose();
  });
});
