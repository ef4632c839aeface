// Root cause of these cases: limits of an embedding context that are met in native code, and sizes that are promised but
// not checked. Cases C067, C069, C070.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { embeddingResponseSchema } from "../../shared/openai/embeddings.ts";
import { openEngine, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8, slots: 8, context_length: 700 });
});
afterAll(() => engine.stop());

const WIDTH = 128;
const embed = (body: object, id = "") =>
  engine.post("/v1/embeddings", { model: "demo", ...body }, { headers: { "x-steerage-request-id": id } });
async function vectors(body: object): Promise<number[][]> {
  const { data } = embeddingResponseSchema.parse(await (await embed(body)).json());
  expect(data.map(({ index }) => index)).toEqual([...data.keys()]);
  return data.map(({ embedding }) => z.array(z.number()).parse(embedding));
}
async function refusal(body: object) {
  const response = await embed(body);
  const { error } = z
    .object({ error: z.looseObject({ param: z.string(), message: z.string() }) })
    .parse(await response.json());
  return { status: response.status, ...error };
}
const tokens = (count: number) => Array.from({ length: count }, (_, at) => 100 + (at % 300));

describe("C067: dimensions", () => {
  it("may be the model's own and nothing else", async () => {
    expect((await vectors({ input: "sea", dimensions: WIDTH }))[0]).toHaveLength(WIDTH);
    for (const dimensions of [0, -1, 1.5, WIDTH / 2, WIDTH + 1]) {
      expect(await refusal({ input: "sea", dimensions })).toMatchObject({ status: 400, param: "dimensions" });
    }
  });
});

describe("C069: long inputs, in a window that is no round number", () => {
  it("work up to the limit, whatever native batches they cross", async () => {
    for (const length of [1, 511, 512, 513, 700]) {
      const [vector] = await vectors({ input: tokens(length) });
      expect(Math.hypot(...(vector ?? []))).toBeCloseTo(1, 3);
    }
  });

  it("are refused beyond it by their place and with both numbers; the good ones beside them are not billed", async () => {
    for (const length of [701, 2_000]) {
      const body = { input: [tokens(3), tokens(length), tokens(5)] };
      expect(await refusal(body)).toMatchObject({
        status: 400,
        param: "input[1]",
        message: expect.stringMatching(new RegExp(`${length}.*700`, "u")),
      });
    }
    await (await embed({ input: [tokens(3), tokens(701)] }, "req_long")).arrayBuffer();
    expect(await engine.ended("req_long")).toMatchObject({ outcome: "failed", computed_prompt: 0 });
    expect(await vectors({ input: "still here" })).toHaveLength(1);
  });
});

describe("C070: the window", () => {
  it("is what one request can really use, with all slots, and is told", async () => {
    while (engine.events.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(engine.events[0]).toMatchObject({ type: "ready", context_length: 700, slots: 8 });
    const asked = { model: "demo", prompt: tokens(690), ignore_eos: true };
    const answers = await Promise.all(
      Array.from({ length: 8 }, async () => (await engine.post("/v1/completions", asked)).json()),
    );
    for (const answer of answers) expect(answer).toMatchObject({ usage: { total_tokens: 700 } });
  });
});

describe("pooling", () => {
  it("by the last token gives other vectors than the mean, each the same every time", async () => {
    const [mean, last] = [await vectors({ input: "the sea" }), await vectors({ input: "the sea", pooling: "last" })];
    expect(last).not.toEqual(mean);
    expect(await vectors({ input: "the sea", pooling: "last" })).toEqual(last);
    expect(await vectors({ input: "the sea" })).toEqual(mean);
    expect(await refusal({ input: "the sea", pooling: "cls" })).toMatchObject({ status: 400, param: "pooling" });
  });
});
