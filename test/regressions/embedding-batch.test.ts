// Root cause: inputs that were computed in one batch went through other kernels than an input alone, so that a vector
// depended on its company by up to 2e-3.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { embeddingResponseSchema } from "../../shared/openai/embeddings.ts";
import { openEngine, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8, max_pending: 8 });
});
afterAll(() => engine.stop());

const ask = (input: unknown) => engine.post("/v1/embeddings", { model: "demo", input, encoding_format: "float" });
async function embed(input: unknown) {
  const { data, usage } = embeddingResponseSchema.parse(await (await ask(input)).json());
  expect(data.map(({ index }) => index)).toEqual([...data.keys()]);
  return { vectors: data.map(({ embedding }) => z.array(z.number()).parse(embedding)), usage };
}
function distance(one: readonly number[] = [], other: readonly number[] = []): number {
  expect(one.length).toBe(other.length);
  return one.reduce((most, value, at) => Math.max(most, Math.abs(value - (other[at] ?? NaN))), 0);
}

describe("C068: a batch of embeddings", () => {
  it("has for every input the vector that it has alone, whoever asks beside it, and the sum of their tokens", async () => {
    const clients = ["A wolf", "The queen", "Snow", "My old red boat"].map((subject) =>
      Array.from({ length: 64 }, (_, i) => `${subject} ${i} and the sea${" and the snow".repeat((i * 7) % 19)}`),
    );
    const together = await Promise.all(clients.map(embed));
    let tokens = 0;
    for (const [client, texts] of clients.entries()) {
      for (const [place, text] of texts.entries()) {
        // Every input of the first client, and some of the others.
        if (client > 0 && place % 9 !== client) continue;
        const alone = await embed(text);
        expect(distance(alone.vectors[0], together[client]?.vectors[place])).toBeLessThan(1e-4);
        if (client === 0) tokens += alone.usage.prompt_tokens;
      }
    }
    expect(together[0]?.usage).toMatchObject({ prompt_tokens: tokens, total_tokens: tokens });
    // Distances tell clients apart, or nothing above would mean anything.
    expect(distance(together[0]?.vectors[5], together[1]?.vectors[5])).toBeGreaterThan(1e-3);
  });

  it("may hold texts, tokens and both, each as it is alone", async () => {
    const ids = [300, 301, 302];
    const [text, tokens] = [await embed("the sea"), await embed(ids)];
    const { vectors } = await embed(["the sea", ids, "the sea"]);
    const [first, second, third] = vectors;
    expect(distance(first, text.vectors[0])).toBeLessThan(1e-4);
    expect(distance(second, tokens.vectors[0])).toBeLessThan(1e-4);
    expect(distance(third, first)).toBeLessThan(1e-4);
    expect((await embed([ids, ids])).vectors).toHaveLength(2);
  });

  it.each([
    ["no input", [], /^input$/u],
    ["an empty text", "", /^input$/u],
    ["an empty text among others", ["a", ""], /^input/u],
    ["an empty list of tokens among others", [[300], []], /^input/u],
    ["2,049 inputs", Array.from({ length: 2_049 }, () => "a"), /^input$/u],
    ["a token that is none", [1_000_000], /^input/u],
    ["a fraction of a token", [1.5], /^input/u],
    ["an input of null", [null], /^input/u],
  ])("of %s is refused by name", async (_what, input, param) => {
    const response = await ask(input);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param: expect.stringMatching(param) } });
  });
});
