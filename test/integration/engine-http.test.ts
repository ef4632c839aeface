import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { z } from "zod";
import { chatChunkSchema, chatCompletionSchema } from "../../shared/openai/chat.ts";
import { textCompletionSchema } from "../../shared/openai/completions.ts";
import { embeddingResponseSchema } from "../../shared/openai/embeddings.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { saeFolder, safetensorsBytes } from "../support/safetensors-fixture.ts";
import { bytesOf, EOS, scriptedAddon, ScriptedModel, type ScriptedContext } from "../support/scripted-native.ts";

/** d = 4, F = 3: fits the scripted model. */
const SAE = saeFolder(
  { architecture: "standard", d_in: 4, d_sae: 3, hook_name: "blocks.1.hook_resid_post" },
  safetensorsBytes({
    W_enc: { shape: [4, 3], values: Array.from({ length: 12 }, () => 1) },
    W_dec: { shape: [3, 4], values: [1, 0, 0, 0, 0, 1, 0, 0, 0, 0, 1, 0] },
    b_enc: { shape: [3], values: [0, 0, 0] },
    b_dec: { shape: [4], values: [0, 0, 0, 0] },
  }),
);

let model: ScriptedModel;
let engine: EngineHarness;
const context = (): ScriptedContext => {
  if (model.context === null) throw new Error("no context was made");
  return model.context;
};
beforeEach(async () => {
  model = new ScriptedModel();
  model.configure = (made) => (made.auto = true);
  engine = await openEngine(scriptedAddon(model), { saes: [{ id: "s", path: SAE, layer: null }] });
});
afterEach(() => engine.stop());

const hello = { model: "m", messages: [{ role: "user", content: "hi" }] };
const steering = { features: [{ index: 1, strength: 2 }] };
const chat = (over: object, init?: Parameters<EngineHarness["post"]>[2]) =>
  engine.post("/v1/chat/completions", { ...hello, ...over }, init);
const named = (requestId: string) => ({ headers: { "x-steerage-request-id": requestId, "x-steerage-attempt": "2" } });

async function chunksOf(over: object) {
  const data = await streamData(await chat({ stream: true, ...over }));
  return {
    done: data.at(-1) === "[DONE]",
    chunks: data.filter((one) => one !== "[DONE]").map((one) => JSON.parse(one)),
  };
}

const chance = { bytes: z.array(z.int()), logprob: z.number().max(0) };
const logprobsSchema = z.object({
  content: z.array(z.object({ ...chance, top_logprobs: z.array(z.object(chance)) })),
});

describe("a whole answer", () => {
  it("has OpenAI's shape, exact usage and the receipt of an unsteered answer", async () => {
    const response = await chat({});
    const answer = chatCompletionSchema.parse(await response.json());
    expect(answer.choices[0]).toMatchObject({ message: { content: "ok" }, finish_reason: "stop" });
    expect(answer.usage).toMatchObject({ prompt_tokens: 22, completion_tokens: 3, total_tokens: 25 });
    expect(response.headers.get("x-steerage-steering")).toBe("none");
    expect(answer).not.toHaveProperty("steerage");
  });

  it("carries what was steered and sensed, from what the hook did", async () => {
    const response = await chat({ steering, return_sae_activations: { top_k: 1, positions: { start: 2, end: 4 } } });
    const answer = chatCompletionSchema.parse(await response.json());
    expect(response.headers.get("x-steerage-steering")).toMatch(/^inline;sae="s";layer=1;features=1;hash="/u);
    expect(answer["steerage"]).toEqual({
      steering: response.headers.get("x-steerage-steering"),
      activations: {
        sae_id: "s",
        layer: 1,
        read_point: "post_steering",
        positions: [
          { position: 2, token_id: "u".charCodeAt(0), features: [{ index: 2, value: 3 }] },
          { position: 3, token_id: "s".charCodeAt(0), features: [{ index: 3, value: 4 }] },
        ],
      },
    });
    expect(context().submitted[0]?.edits[0]?.vector).toEqual(Float32Array.of(0, 2, 0, 0));
  });

  it("is cut where a stop string begins and at the token limit", async () => {
    context().reply = () => [...bytesOf("one STOP two"), EOS];
    const cut = chatCompletionSchema.parse(await (await chat({ stop: "STOP" })).json());
    expect(cut.choices[0]).toMatchObject({ message: { content: "one " }, finish_reason: "stop" });
    const short = chatCompletionSchema.parse(await (await chat({ max_tokens: 2 })).json());
    expect(short.choices[0]).toMatchObject({ message: { content: "on" }, finish_reason: "length" });
    expect(short.usage.completion_tokens).toBe(2);
  });

  it("has log-probabilities whose bytes are the answer's", async () => {
    context().reply = () => [...bytesOf("é!"), EOS];
    const answer = chatCompletionSchema.parse(await (await chat({ logprobs: true, top_logprobs: 4 })).json());
    const entries = logprobsSchema.parse(answer.choices[0]?.logprobs).content;
    expect(Buffer.from(entries.flatMap(({ bytes }) => bytes)).toString()).toBe("é!");
    // The schema lets no number pass that is not finite or above zero.
    for (const { top_logprobs: top } of entries) expect(top).toHaveLength(4);
  });

  it("answers completions too, with offsets into the text", async () => {
    const response = await engine.post("/v1/completions", { model: "m", prompt: "x", logprobs: 1 });
    const answer = textCompletionSchema.parse(await response.json());
    expect(answer.choices[0]).toMatchObject({ text: "ok", finish_reason: "stop", logprobs: { text_offset: [0, 1] } });
  });

  it("names what it ignored", async () => {
    expect((await chat({ store: true })).headers.get("x-steerage-ignored-fields")).toBe("store");
  });
});

describe("a stream", () => {
  it("has one id, the role once, the finish, then steerage, usage and [DONE]", async () => {
    const { done, chunks } = await chunksOf({ steering, stream_options: { include_usage: true } });
    expect(done).toBe(true);
    for (const chunk of chunks) chatChunkSchema.parse(chunk);
    expect(new Set(chunks.map(({ id }) => id)).size).toBe(1);
    expect(chunks.filter(({ choices }) => choices[0]?.delta.role === "assistant")).toHaveLength(1);
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("")).toBe("ok");
    expect(chunks.slice(-3).map(({ choices }) => choices[0]?.finish_reason ?? null)).toEqual(["stop", null, null]);
    expect(chunks.at(-2)).toMatchObject({ choices: [], steerage: { steering: expect.stringMatching(/^inline/u) } });
    expect(chunks.at(-1)).toMatchObject({ choices: [], usage: { prompt_tokens: 22, completion_tokens: 3 } });
  });

  it("has neither steerage nor usage when nothing asked for them, and says so in its header", async () => {
    const response = await chat({ stream: true });
    expect(response.headers.get("x-steerage-steering")).toBe("none");
    expect(await streamData(response)).not.toContainEqual(expect.stringMatching(/usage|steerage/u));
    expect((await chat({ stream: true, steering })).headers.has("x-steerage-steering")).toBe(false);
  });

  it("equals the whole answer where characters and stop strings are cut by tokens", async () => {
    context().reply = () => [...bytesOf("日本😀 and EN"), ...bytesOf("D rest"), EOS];
    for (const over of [{}, { stop: ["END"] }, { max_tokens: 5 }, { max_tokens: 8 }, { stop: ["ENDLESS"] }]) {
      const whole = chatCompletionSchema.parse(await (await chat(over)).json());
      const { chunks } = await chunksOf(over);
      const text = chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
      expect(text).toBe(whole.choices[0]?.message.content);
      expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe(whole.choices[0]?.finish_reason);
    }
  });

  it("starts with a role even when the answer is empty", async () => {
    context().reply = () => [EOS];
    const { chunks } = await chunksOf({});
    expect(chunks.map(({ choices }) => choices[0]?.delta)).toEqual([{ role: "assistant", content: "" }, {}]);
  });

  it("ends with an error and without [DONE] when the engine fails after its start", async () => {
    context().auto = false;
    context().reply = () => [...bytesOf("long answer")];
    const response = await chat({ stream: true }, named("req_failed"));
    context().step();
    context().failNext = "decode_failed";
    context().step();
    const data = await streamData(response);
    expect(JSON.parse(data.at(-1) ?? "")).toMatchObject({ error: { code: "engine_failed" } });
    expect(data).not.toContain("[DONE]");
    expect(await engine.ended("req_failed")).toMatchObject({ outcome: "failed", computed_completion: 1 });
  });

  it("is cancelled when its client goes, with the exact account of what was computed", async () => {
    context().auto = false;
    context().reply = () => [...bytesOf("x".repeat(90))];
    const left = new AbortController();
    const response = await chat({ stream: true }, { ...named("req_left"), signal: left.signal });
    for (let steps = 0; steps < 3; steps += 1) context().step();
    const reader = response.body?.getReader();
    await reader?.read();
    left.abort();
    await reader?.closed.catch(() => undefined);
    context().auto = true;
    context().step();
    const account = await engine.ended("req_left");
    expect(account).toMatchObject({ attempt: 2, outcome: "cancelled", computed_prompt: 22 });
    expect(account.computed_completion).toBeLessThan(90);
  });
});

describe("accounts of requests", () => {
  it("equal the usage that the answer tells, cached tokens included", async () => {
    for (const [round, cached] of [0, 21].entries()) {
      const response = await chat({}, named(`req_${round}`));
      const { usage } = chatCompletionSchema.parse(await response.json());
      const account = await engine.ended(`req_${round}`);
      expect(account).toMatchObject({ cached_prompt: cached, outcome: "completed" });
      expect(usage.prompt_tokens).toBe(account.computed_prompt + account.cached_prompt);
      expect(usage.prompt_tokens_details?.cached_tokens).toBe(cached);
      expect(usage.completion_tokens).toBe(account.computed_completion);
    }
  });

  it("share no prefix between projects", async () => {
    await (await chat({}, { headers: { "x-steerage-cache-salt": "a" } })).json();
    await (await chat({}, { headers: { "x-steerage-cache-salt": "b" } })).json();
    expect(context().submitted.map(({ keepTokens }) => keepTokens)).toEqual([0, 0]);
  });

  it("are told for a refused request too, with nothing computed", async () => {
    const response = await chat({ n: 129 }, named("req_refused"));
    expect(response.status).toBe(400);
    expect(await engine.ended("req_refused")).toMatchObject({ outcome: "failed", computed_prompt: 0 });
    expect(engine.events.filter((event) => event.type === "ended")).toHaveLength(1);
  });
});

describe("embeddings", () => {
  it("have unit length, and base64 holds the same little-endian numbers", async () => {
    const asked = { model: "m", input: ["a", "bcd"] };
    const response = await engine.post("/v1/embeddings", asked, named("req_embed"));
    const plain = embeddingResponseSchema.parse(await response.json());
    expect(plain.data.map(({ index }) => index)).toEqual([0, 1]);
    expect(plain.usage).toEqual({ prompt_tokens: 6, total_tokens: 6 });
    expect(await engine.ended("req_embed")).toMatchObject({ computed_prompt: 6, outcome: "completed" });
    const packed = embeddingResponseSchema.parse(
      await (await engine.post("/v1/embeddings", { ...asked, encoding_format: "base64" })).json(),
    );
    for (const [place, { embedding }] of packed.data.entries()) {
      const bytes = Buffer.from(String(embedding), "base64");
      const numbers = Array.from({ length: bytes.length / 4 }, (_, at) => bytes.readFloatLE(at * 4));
      expect(numbers).toEqual(plain.data[place]?.embedding);
      expect(Math.hypot(...numbers)).toBeCloseTo(1);
    }
  });
});

describe("refusals", () => {
  it.each([
    ["a body that is no JSON", "/v1/chat/completions", "{", 400, "invalid_json"],
    ["a body that is no object", "/v1/completions", "[]", 400, "invalid_body"],
    ["another model", "/v1/chat/completions", JSON.stringify({ ...hello, model: "x" }), 404, "model_not_found"],
    ["no model", "/v1/chat/completions", JSON.stringify({ messages: [] }), 400, "missing_field"],
    ["another path", "/v1/files", "{}", 404, "route_not_found"],
    ["a wrong strict header", "/v1/chat/completions", JSON.stringify(hello), 400, "invalid_value"],
  ])("for %s are OpenAI's envelope and name the backend", async (what, path, body, ...[status, code]) => {
    const headers: Record<string, string> = what.includes("strict") ? { "x-steerage-strict": "maybe" } : {};
    const response = await engine.post(path, body, { headers });
    expect(response.status).toBe(status);
    expect(await response.json()).toMatchObject({
      error: { code, type: expect.any(String), message: expect.any(String) },
    });
    expect(response.headers.get("x-steerage-error-source")).toBe("backend");
  });

  it("for a wrong method list the right one", async () => {
    const response = await engine.get("/v1/completions");
    expect(response.status).toBe(405);
    expect(response.headers.get("allow")).toBe("POST");
  });

  it("for a prompt beyond the window come before any byte of a stream", async () => {
    const response = await engine.post("/v1/completions", { model: "m", prompt: "x".repeat(500), stream: true });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { code: "context_length_exceeded" } });
  });

  it("for a full queue carry a Retry-After, and those that wait are answered", async () => {
    context().auto = false;
    const waiting = Array.from({ length: 4 }, () => chat({}));
    while (context().submitted.length < 2) await new Promise((resolve) => setImmediate(resolve));
    const refused = await (async () => {
      for (;;) {
        const response = await chat({});
        if (response.status === 503) return response;
        waiting.push(Promise.resolve(response));
      }
    })();
    expect(refused.headers.get("retry-after")).toBe("5");
    expect(await refused.json()).toMatchObject({ error: { code: "engine_busy" } });
    context().auto = true;
    context().step();
    for (const response of await Promise.all(waiting)) expect(response.status).toBe(200);
  });

  it("for a failure of the native core are constant and leave the details to the log", async () => {
    context().failNext = "non_finite_logits";
    const response = await chat({});
    expect(response.status).toBe(500);
    expect(JSON.stringify(await response.json())).not.toContain("scripted failure");
    expect(engine.log.join("\n")).toContain("non_finite_logits: scripted failure");
    expect((await chat({})).status).toBe(200);
  });

  it("for several choices are told and logged once, though one failure ends all of them", async () => {
    const linesBefore = engine.log.length;
    context().failNext = "decode_failed";
    expect((await chat({ n: 2 })).status).toBe(500);
    const lines = engine.log.slice(linesBefore).filter((line) => line.includes('"level":"error"'));
    expect(lines).toEqual([expect.stringContaining("decode_failed: scripted failure")]);
  });
});

describe("a context that cannot be opened as asked", () => {
  it("is refused at once when its cache is quantised without flash attention", async () => {
    const options = { kv_cache_type: "q4_0", flash_attention: false } as const;
    await expect(openEngine(scriptedAddon(new ScriptedModel()), options)).rejects.toThrow("needs flash_attention");
  });
  it("is opened as large as memory allows, and told so", async () => {
    const short = new ScriptedModel({ trainingContextLength: 8_192 });
    short.largestContext = 5_000;
    const small = await openEngine(scriptedAddon(short), { slots: 4 });
    while (small.events.length === 0) await new Promise((resolve) => setImmediate(resolve));
    expect(small.events[0]).toMatchObject({ type: "ready", context_length: 4_096 });
    expect(small.log.join("\n")).toContain("a smaller one is tried");
    await small.stop();
    short.largestContext = 100;
    await expect(openEngine(scriptedAddon(short), {})).rejects.toMatchObject({ code: "out_of_memory" });
  });
});

describe("the end of the engine", () => {
  it("lets running answers finish, refuses new ones and frees native memory", async () => {
    context().auto = false;
    const running = chat({});
    while (context().submitted.length < 1) await new Promise((resolve) => setImmediate(resolve));
    const stopped = engine.stop();
    const refused = await chat({});
    expect(refused.status).toBe(503);
    expect(await refused.json()).toMatchObject({ error: { code: "draining" } });
    context().auto = true;
    context().step();
    expect((await running).status).toBe(200);
    await stopped;
    expect([context().disposed, model.disposed]).toEqual([true, true]);
  });
});
