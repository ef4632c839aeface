import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, describe, expect, it } from "vitest";
import type { NativeModel } from "../../backend/native/binding.ts";
import { GREEDY, NativeSession, openModel } from "../support/native-harness.ts";
import { FIXTURE_SHAPE, type FixtureArchitecture, randomModel } from "../support/random-model.ts";

const speculation = { tokens: 6, whenFaster: false };
const folder = mkdtempSync(join(tmpdir(), "steerage-speculation-"));
const open: NativeModel[] = [];
afterAll(async () => {
  for (const model of open) await model.dispose();
  rmSync(folder, { recursive: true });
});

async function modelOf(architecture: FixtureArchitecture): Promise<NativeModel> {
  const path = join(folder, `${architecture}.gguf`);
  writeFileSync(path, randomModel(architecture, 23));
  const model = await openModel(path);
  open.push(model);
  return model;
}

describe("speculative decoding on other architectures", () => {
  it.each(["llama", "gemma2", "qwen2", "gpt2"] as const)(
    "gives the tokens that come without it on %s",
    async (architecture) => {
      const model = await modelOf(architecture);
      const plain = await NativeSession.open(model);
      const drafting = await NativeSession.open(model, { speculation });
      const tokens = Int32Array.from({ length: 48 }, (_, i) => (i % 12) * 5);
      for (const temperature of [0, 0.8]) {
        // Few tokens to choose from, so that what comes has often come before.
        const sampler = { ...GREEDY, temperature, seed: 5, allowedTokens: tokens.slice(0, 3) };
        const wish = { tokens, maxTokens: 120, ignoreEndOfGeneration: true, sampler };
        expect((await drafting.run(wish)).tokens).toEqual((await plain.run(wish)).tokens);
      }
      const { draftedTokens, acceptedTokens } = drafting.counters();
      expect(acceptedTokens).toBeGreaterThan(0);
      expect(draftedTokens).toBeGreaterThan(acceptedTokens);
      await plain.context.dispose();
      await drafting.context.dispose();
    },
  );

  it("drafts no token beyond the last learned position", async () => {
    const model = await modelOf("gpt2");
    const { contextLength } = FIXTURE_SHAPE;
    const drafting = await NativeSession.open(model, { speculation });
    const tokens = new Int32Array(contextLength - 20).fill(65);
    const sampler = { ...GREEDY, allowedTokens: Int32Array.of(65) };
    const { tokens: sampled, finished } = await drafting.run({ tokens, maxTokens: 100, sampler });
    expect(finished).toMatchObject({ reason: "length", errorCode: null });
    expect(sampled.length).toBe(21);
    expect(drafting.counters().acceptedTokens).toBeGreaterThan(10);
    await drafting.context.dispose();
  });

  it("is refused by a model whose state cannot be taken back, with the reason; nor can it be cut into streams", async () => {
    const model = await modelOf("mamba");
    await expect(NativeSession.open(model, { speculation, kvStreams: false })).rejects.toMatchObject({
      code: "model_unsupported",
      message: expect.stringContaining("it is recurrent"),
    });
    await expect(NativeSession.open(model, { kvStreams: true })).rejects.toMatchObject({
      code: "invalid_argument",
      message: expect.stringContaining("kvStreams"),
    });
    const plain = await NativeSession.open(model, { kvStreams: false });
    const { finished } = await plain.run({ tokens: Int32Array.of(1, 2, 3), maxTokens: 4, ignoreEndOfGeneration: true });
    expect(finished).toMatchObject({ reason: "length", errorCode: null });
    expect(plain.context.hookRefusal).toBe("recurrent");
    await plain.context.dispose();
  });
});
