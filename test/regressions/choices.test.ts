// Root cause of these cases: an answer with several choices written as if it had one, so that indices, finish reasons or
// counts of all but one are lost. Case C037, and completions with several prompts, which are choices too.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { chatChunkSchema, chatCompletionSchema } from "../../shared/openai/chat.ts";
import { textCompletionSchema } from "../../shared/openai/completions.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon, repositoryFile } from "../support/native-harness.ts";

const logprobsSchema = z.object({
  tokens: z.array(z.string()),
  token_logprobs: z.array(z.number().nullable()),
  top_logprobs: z.array(z.record(z.string(), z.number()).nullable()),
  text_offset: z.array(z.int()),
});
let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), {
    model: "demo",
    model_path: DEMO_Q8,
    saes: [{ id: "demo-l1", path: repositoryFile("backend/demo/demo-l1"), layer: null }],
    slots: 3,
    max_pending: 4,
    kv_cache_type: "q8_0",
  });
});
afterAll(() => engine.stop());

const asked = { model: "demo", messages: [{ role: "user", content: "Tell me a story." }], max_tokens: 12, seed: 5 };
const chat = async (over: object, id = "") =>
  chatCompletionSchema.parse(
    await (
      await engine.post("/v1/chat/completions", { ...asked, ...over }, { headers: { "x-steerage-request-id": id } })
    ).json(),
  );
const textsOf = (answer: Awaited<ReturnType<typeof chat>>) =>
  answer.choices.map(({ message }) => message.content ?? "");

describe("C037: n", () => {
  it("gives as many choices, more than there are slots too, each like its own seed alone", async () => {
    const solo: string[] = [];
    for (let place = 0; place < 5; place += 1) solo.push(...textsOf(await chat({ seed: 5 + place })));
    for (let round = 0; round < 3; round += 1) {
      const answer = await chat({ n: 5 });
      expect(textsOf(answer)).toEqual(solo);
      expect(answer.choices.map(({ index, finish_reason: reason }) => [index, reason])).toEqual(
        [0, 1, 2, 3, 4].map((index) => [index, "length"]),
      );
    }
    expect(new Set(solo).size).toBe(5);
  });

  it("streams every choice under its index, with one usage: the prompt once, completions summed", async () => {
    const body = { ...asked, n: 3, max_tokens: 4, stream: true, stream_options: { include_usage: true } };
    const response = await engine.post("/v1/chat/completions", body, {
      headers: { "x-steerage-request-id": "req_choices" },
    });
    const data = await streamData(response);
    expect(data.at(-1)).toBe("[DONE]");
    const chunks = data.slice(0, -1).map((one) => chatChunkSchema.parse(JSON.parse(one)));
    const whole = await chat({ n: 3, max_tokens: 4 });
    for (const index of [0, 1, 2]) {
      const own = chunks.flatMap(({ choices }) => choices.filter((choice) => choice.index === index));
      expect(own.filter(({ delta }) => delta.role === "assistant")).toHaveLength(1);
      expect(own[0]?.delta.role).toBe("assistant");
      expect(own.filter(({ finish_reason: reason }) => reason !== null)).toHaveLength(1);
      expect(own.at(-1)?.finish_reason).toBe("length");
      expect(own.map(({ delta }) => delta.content ?? "").join("")).toBe(textsOf(whole)[index]);
    }
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { completion_tokens: 12 } });
    expect(chunks.filter(({ usage }) => usage !== null && usage !== undefined)).toHaveLength(1);
    const { usage } = await chat({ max_tokens: 4 });
    expect(chunks.at(-1)?.usage?.prompt_tokens).toBe(usage.prompt_tokens);
    const account = await engine.ended("req_choices");
    expect(account.computed_completion).toBe(12);
    expect(account.computed_prompt + account.cached_prompt).toBe(usage.prompt_tokens);
  });

  it("computes a prompt once for all its choices", async () => {
    const messages = [{ role: "user", content: `A prompt that nobody sent before ${"the sea ".repeat(40)}` }];
    const { usage } = await chat({ messages, n: 3 }, "req_shared");
    const account = await engine.ended("req_shared");
    expect(account.computed_prompt + account.cached_prompt).toBe(usage.prompt_tokens);
    const again = await chat({ messages, n: 3 });
    expect(again.usage.prompt_tokens_details?.cached_tokens).toBe(usage.prompt_tokens - 1);
  });

  it("steers every choice, and is refused together with sensing and outside of 1 to 128", async () => {
    const steering = { sae_id: "demo-l1", features: [{ index: 501, strength: 40 }] };
    const steered = await chat({ n: 2, steering });
    expect(textsOf(steered)).not.toEqual(textsOf(await chat({ n: 2 })));
    expect(steered["steerage"]).toMatchObject({ steering: expect.stringMatching(/^inline;sae="demo-l1"/u) });
    for (const over of [{ n: 0 }, { n: 129 }, { n: 2, return_sae_activations: { sae_id: "demo-l1" } }]) {
      for (const stream of [false, true]) {
        const response = await engine.post("/v1/chat/completions", { ...asked, ...over, stream });
        expect(response.status).toBe(400);
        expect(await response.json()).toMatchObject({ error: { param: "n" } });
      }
    }
  });

  it("frees every slot when the client leaves", async () => {
    const left = new AbortController();
    const body = { ...asked, n: 5, max_tokens: 900, ignore_eos: true, stream: true };
    const init = { signal: left.signal, headers: { "x-steerage-request-id": "req_left" } };
    const response = await engine.post("/v1/chat/completions", body, init);
    await response.body?.getReader().read();
    left.abort();
    expect(await engine.ended("req_left")).toMatchObject({ outcome: "cancelled" });
    expect((await chat({ n: 3 })).choices).toHaveLength(3);
  });
});

const complete = async (over: object) =>
  textCompletionSchema.parse(
    await (
      await engine.post("/v1/completions", { model: "demo", prompt: "Once", max_tokens: 6, temperature: 0, ...over })
    ).json(),
  );

describe("several prompts of a completion", () => {
  it("are choices in the prompts' order, and counted each", async () => {
    const prompts = ["The sea", "One busy morning", "A"];
    const alone: Awaited<ReturnType<typeof complete>>[] = [];
    for (const prompt of prompts) alone.push(await complete({ prompt }));
    const together = await complete({ prompt: prompts });
    expect(together.choices.map(({ text, index }) => [index, text])).toEqual(
      alone.map(({ choices }, index) => [index, choices[0]?.text]),
    );
    const sumOf = (name: "prompt_tokens" | "completion_tokens") =>
      alone.reduce((total, { usage }) => total + (usage?.[name] ?? 0), 0);
    expect(together.usage?.prompt_tokens).toBe(sumOf("prompt_tokens"));
    expect(together.usage?.completion_tokens).toBe(sumOf("completion_tokens"));
    const twice = await complete({ prompt: prompts, n: 2 });
    expect(twice.choices.map(({ text }) => text)).toEqual(
      alone.flatMap(({ choices }) => [choices[0]?.text, choices[0]?.text]),
    );
  });
});

describe("the echo of a prompt", () => {
  it("stands before the completion, in streams too", async () => {
    const plain = await complete({});
    const echoed = await complete({ echo: true });
    expect(echoed.choices[0]?.text).toBe(`Once${plain.choices[0]?.text}`);
    const response = await engine.post("/v1/completions", {
      model: "demo",
      prompt: "Once",
      max_tokens: 6,
      temperature: 0,
      echo: true,
      stream: true,
    });
    const data = (await streamData(response)).slice(0, -1);
    const texts = data.map((one) => textCompletionSchema.parse(JSON.parse(one)).choices[0]?.text ?? "");
    expect(texts.join("")).toBe(echoed.choices[0]?.text);
  });

  it("has the log-probabilities of the prompt's tokens, the first of which has none", async () => {
    const ids = [100, 200, 300];
    for (const prompt of [ids, "The sea was calm"]) {
      const answer = await complete({ prompt, echo: true, logprobs: 2 });
      const { logprobs, text = "" } = answer.choices[0] ?? {};
      const told = logprobsSchema.parse(logprobs);
      expect(told.tokens.join("")).toBe(text);
      expect(
        told.tokens.map((token, at) => text.slice(told.text_offset[at], (told.text_offset[at] ?? 0) + token.length)),
      ).toEqual(told.tokens);
      const usage = answer.usage;
      const heads = told.token_logprobs.slice(0, -6);
      expect(heads[0] === null).toBe(usage?.prompt_tokens === heads.length);
      for (const logprob of told.token_logprobs.slice(1)) expect(logprob).toBeLessThanOrEqual(0);
      for (const top of told.top_logprobs.slice(1)) expect(Object.keys(top ?? {}).length).toBeGreaterThan(0);
    }
  });
});

describe("scoring", () => {
  it("draws from the allowed tokens alone, with probabilities over them that sum to one", async () => {
    const answer = await complete({ max_tokens: 1, logprobs: 3, allowed_token_ids: [300, 301, 302] });
    const [top] = logprobsSchema.parse(answer.choices[0]?.logprobs).top_logprobs;
    const sum = Object.values(top ?? {}).reduce((total, logprob) => total + Math.exp(logprob), 0);
    expect(sum).toBeCloseTo(1, 4);
  });
});
