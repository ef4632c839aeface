// Behaviours that the test suites of llama.cpp (L), vLLM (V), paddler (P) and OpenAI's schema (Y) agree on, with the
// `openai` client through edge, host and native engine. The number before each is its place in the list of sixty;
// those left out concern the gateway alone, and 30, a grammar refused beside reasoning: here the two work together
// (test/regressions/reasoning.test.ts).
import OpenAI, { BadRequestError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { chatChunkSchema, chatCompletionSchema } from "../../shared/openai/chat.ts";
import { embeddingResponseSchema } from "../../shared/openai/embeddings.ts";
import { DEMO_MODEL, Stack } from "../support/stack.ts";

let stack: Stack;
let client: OpenAI;
beforeAll(async () => {
  stack = await Stack.start({ host: { allow_grammar: true } });
  client = new OpenAI({ baseURL: stack.baseUrl, apiKey: stack.key, maxRetries: 0 });
});
afterAll(() => stack.stop());

const user = (content: string) => ({ role: "user" as const, content });
const story = { model: DEMO_MODEL, messages: [user("Tell me a story.")], temperature: 0, max_tokens: 24 };
const ask = (over: object = {}) => client.chat.completions.create({ ...story, ...over });
const complete = (over: object = {}) =>
  client.completions.create({ model: DEMO_MODEL, prompt: "Once upon a time", temperature: 0, max_tokens: 12, ...over });
const embed = (input: unknown) => {
  const over: object = { input };
  return client.embeddings.create({ model: DEMO_MODEL, input: "", encoding_format: "float", ...over });
};

async function chunksOf(over: object = {}) {
  const chunks: OpenAI.ChatCompletionChunk[] = [];
  for await (const chunk of await client.chat.completions.create({ ...story, ...over, stream: true })) {
    chunks.push(chunk);
  }
  return chunks;
}
const textOf = (chunks: readonly OpenAI.ChatCompletionChunk[]) =>
  chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("");
const withUsage = { stream_options: { include_usage: true } };

/** The refusal of a request that must not be answered, which leaves the server well. */
async function refusalOf(asked: () => Promise<unknown>): Promise<BadRequestError> {
  const error: unknown = await asked().then(
    () => null,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof BadRequestError)) throw new Error(`not refused with 400: ${String(error)}`);
  expect(error.type).toBe("invalid_request_error");
  expect((await ask({ max_tokens: 1 })).choices).toHaveLength(1);
  return error;
}

describe("shapes", () => {
  it("[1] a chat answer has id, object, created, model, choices and usage", async () => {
    const answer = await ask();
    expect(() => chatCompletionSchema.parse(answer)).not.toThrow();
    expect(answer.choices[0]).toMatchObject({ index: 0, logprobs: null, message: { refusal: null } });
  });

  it("[2] every chunk is one, with a finish_reason that may be null", async () => {
    const chunks = await chunksOf(withUsage);
    expect(chunks.length).toBeGreaterThanOrEqual(3);
    for (const chunk of chunks) expect(() => chatChunkSchema.parse(chunk)).not.toThrow();
  });

  it("[4] entries of the model list have id, object, created and owned_by", async () => {
    const { data } = await client.models.list();
    expect(data).toHaveLength(1);
    expect(data[0]).toMatchObject({ id: DEMO_MODEL, object: "model", owned_by: expect.any(String) });
    expect(Number.isSafeInteger(data[0]?.created)).toBe(true);
  });

  it("[5] the id has its form and is the same in all chunks", async () => {
    expect(new Set((await chunksOf(withUsage)).map(({ id }) => id)).size).toBe(1);
    expect((await ask()).id).toMatch(/^chatcmpl-\w{10,}$/u);
    const ids = new Set<string>();
    const stream = await client.completions.create({ model: DEMO_MODEL, prompt: "The", max_tokens: 6, stream: true });
    for await (const { id } of stream) ids.add(id);
    expect([...ids]).toEqual([expect.stringMatching(/^cmpl-\w{10,}$/u)]);
  });

  it("[6] the first delta has the role, and no later one", async () => {
    const roles = (await chunksOf()).map(({ choices }) => choices[0]?.delta.role);
    expect(roles[0]).toBe("assistant");
    expect(roles.slice(1).filter((role) => role !== undefined)).toEqual([]);
  });

  it("[7] [8] the finish comes once, last, and without content", async () => {
    const chunks = await chunksOf();
    const finished = chunks.filter(({ choices }) => choices[0]?.finish_reason != null);
    expect(finished).toEqual([chunks.at(-1)]);
    expect(finished[0]?.choices[0]?.delta.content ?? "").toBe("");
  });

  it("[18] n = 2 gives two choices with roles and reasons, drawn apart", async () => {
    const { choices, usage } = await ask({ n: 2, temperature: 1, seed: 5 });
    expect(choices.map(({ index, message, finish_reason: reason }) => [index, message.role, reason])).toEqual([
      [0, "assistant", "length"],
      [1, "assistant", "length"],
    ]);
    expect(choices[0]?.message.content).not.toBe(choices[1]?.message.content);
    expect(usage?.completion_tokens).toBe(48);
  });
});

describe("streams and whole answers", () => {
  it("[9] [10] have the same text and finish at temperature 0", async () => {
    for (const over of [{ max_tokens: 30 }, { max_tokens: 400, stop: ["."] }]) {
      const [whole, chunks] = [await ask(over), await chunksOf(over)];
      expect(textOf(chunks)).toBe(whole.choices[0]?.message.content);
      expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe(whole.choices[0]?.finish_reason);
    }
    expect((await ask({ max_tokens: 400, stop: ["."] })).choices[0]?.finish_reason).toBe("stop");
  });

  it("[11] usage adds up", async () => {
    const { usage } = await ask();
    expect(usage?.total_tokens).toBe((usage?.prompt_tokens ?? 0) + (usage?.completion_tokens ?? 0));
  });

  it("[12] without include_usage no chunk has usage", async () => {
    for (const over of [{}, { stream_options: { include_usage: false } }, { stream_options: null }]) {
      for (const chunk of await chunksOf(over)) expect(chunk.usage ?? null).toBeNull();
    }
  });

  it("[13] with it the last chunk alone has it, and has no choices", async () => {
    const chunks = await chunksOf(withUsage);
    const last = chunks.pop();
    expect(last?.choices).toEqual([]);
    expect(last?.usage?.completion_tokens).toBe(24);
    for (const chunk of chunks) {
      expect(chunk.usage ?? null).toBeNull();
      expect(chunk.choices).toHaveLength(1);
    }
  });

  it("[14] stream_options without stream is 400", async () => {
    expect((await refusalOf(() => ask({ stream_options: { include_usage: true } }))).param).toBe("stream_options");
  });
});

describe("lengths and prompts", () => {
  it("[15] max_tokens N gives exactly N completion tokens and length", async () => {
    for (const max of [1, 2, 17, 64]) {
      const { choices, usage } = await ask({ max_tokens: max, ignore_eos: true });
      expect([usage?.completion_tokens, choices[0]?.finish_reason]).toEqual([max, "length"]);
    }
    expect((await complete({ max_tokens: 9 })).usage?.completion_tokens).toBe(9);
  });

  it("[16] content parts are as many prompt tokens as the joined text", async () => {
    const parts = ["Tell me ", "a story."].map((text) => ({ type: "text", text }));
    const [joined, parted] = [await ask(), await ask({ messages: [{ role: "user", content: parts }] })];
    expect(parted.usage?.prompt_tokens).toBe(joined.usage?.prompt_tokens);
    expect(parted.choices[0]?.message.content).toBe(joined.choices[0]?.message.content);
  });

  it("[17] an answer that was begun is gone on with, as text and as parts", async () => {
    const begun = (content: unknown) => ask({ messages: [...story.messages, { role: "assistant", content }] });
    const text = await begun("The sailor went to");
    const parts = await begun(["The sailor", " went to"].map((part) => ({ type: "text", text: part })));
    const fresh = await ask();
    expect(text.choices[0]?.message.content).not.toBe(fresh.choices[0]?.message.content);
    expect(parts.choices[0]?.message.content).toBe(text.choices[0]?.message.content);
    expect(text.usage?.prompt_tokens).toBeGreaterThan(fresh.usage?.prompt_tokens ?? Infinity);
  });

  it.each([false, true])(
    "[34] an over-long prompt is 400 with both numbers, before any byte: stream %s",
    async (stream) => {
      const { data } = await client.models.list();
      const window = Number(JSON.parse(JSON.stringify(data[0])).context_length);
      const error = await refusalOf(() => ask({ messages: [user("sea ".repeat(window + 200))], stream }));
      expect(error.code).toBe("context_length_exceeded");
      const numbers = (error.message.match(/\d{3,}/gu) ?? []).map(Number);
      expect(numbers).toContain(window);
      expect(Math.max(...numbers)).toBeGreaterThan(window);
    },
  );

  it("[35] the window of a request is what the model list says", async () => {
    const { data } = await client.models.list();
    const window = Number(JSON.parse(JSON.stringify(data[0])).context_length);
    const { usage, choices } = await ask({ max_tokens: undefined, ignore_eos: true });
    expect(usage?.total_tokens).toBe(window);
    expect(choices[0]?.finish_reason).toBe("length");
  });
});

describe("log-probabilities", () => {
  it("[19] are null where none were asked for", async () => {
    expect((await ask({ logprobs: false })).choices[0]?.logprobs).toBeNull();
  });

  it.each([0, 5])("[20] with top_logprobs %i list as many alternatives", async (top) => {
    const entries = (await ask({ logprobs: true, top_logprobs: top })).choices[0]?.logprobs?.content ?? [];
    expect(entries).toHaveLength(24);
    for (const entry of entries) expect(entry.top_logprobs).toHaveLength(top);
  });

  it.each([false, true])("[21] top_logprobs above 20 is 400 and the server goes on: stream %s", async (stream) => {
    const error = await refusalOf(() => ask({ logprobs: true, top_logprobs: 21, stream }));
    expect(error.param).toBe("top_logprobs");
  });

  it("[22] [23] join to the text, whole and chunk by chunk, with bytes and no chance above one", async () => {
    const over = { logprobs: true, top_logprobs: 1 };
    const whole = (await ask(over)).choices[0];
    const chunks = await chunksOf(over);
    const streamed = chunks.flatMap(({ choices }) => choices[0]?.logprobs?.content ?? []);
    const entries = whole?.logprobs?.content ?? [];
    expect(streamed.map(({ token }) => token)).toEqual(entries.map(({ token }) => token));
    expect(entries.map(({ token }) => token).join("")).toBe(whole?.message.content);
    for (const { bytes, logprob, token } of streamed) {
      expect(logprob).toBeLessThanOrEqual(0);
      expect(Buffer.from(bytes ?? []).toString("utf8")).toBe(token);
    }
    for (const { choices } of chunks) {
      const told = (choices[0]?.logprobs?.content ?? []).map(({ token }) => token).join("");
      expect(told).toBe(choices[0]?.delta.content ?? "");
    }
  });

  it("[24] a bias of -100 keeps a token out", async () => {
    const drawn = async (logit_bias: object) => {
      const { choices } = await ask({ max_tokens: 1, allowed_token_ids: [300, 301], logit_bias });
      return choices[0]?.message.content;
    };
    const [without300, without301] = [await drawn({ 300: -100 }), await drawn({ 301: -100 })];
    expect(without300).not.toBe(without301);
    expect([without300, without301]).toContain(await drawn({}));
  });
});

describe("what is refused", () => {
  it.each([
    ["none at all", undefined],
    ["null", null],
    ["an empty list", []],
    ["a text", "hello"],
    ["a list of texts", ["hello"]],
    ["no role", [{ content: "hello" }]],
    ["a role that is none", [{ role: "narrator", content: "hello" }]],
    ["a number as content", [{ role: "user", content: 5 }]],
    ["an object as content", [{ role: "user", content: { text: "hello" } }]],
  ])("[25] bad messages are 400 in the envelope: %s", async (_, messages) => {
    expect((await refusalOf(() => ask({ messages }))).param).toMatch(/^messages/u);
  });

  it.each([
    { type: "yaml" },
    { type: "json_schema", json_schema: { name: "n", schema: 5 } },
    { type: "json_schema", json_schema: { name: "n", schema: { type: "poem" } } },
  ])("[27] a response_format that is none: %j", async (response_format) => {
    expect((await refusalOf(() => ask({ response_format }))).param).toMatch(/^response_format/u);
  });

  it("[31] a tool whose schema is none, and a list of no tools; no list is none", async () => {
    const tools = [{ type: "function", function: { name: "f", parameters: { type: "poem" } } }];
    expect((await refusalOf(() => ask({ tools, tool_choice: "required" }))).param).toMatch(/^tools/u);
    expect((await refusalOf(() => ask({ tools: [] }))).param).toBe("tools");
    expect((await ask({ tools: null })).choices[0]?.message.tool_calls).toBeUndefined();
  });
});

describe("constrained answers", () => {
  const schema = (of: object) => ({ response_format: { type: "json_schema", json_schema: { name: "n", schema: of } } });

  it("[28] a schema's constant and types hold the text", async () => {
    const constant = await ask({ ...schema({ const: "42" }), max_tokens: 40 });
    expect(JSON.parse(constant.choices[0]?.message.content ?? "")).toBe("42");
    const typed = await ask({ ...schema({ type: "boolean" }), max_tokens: 40 });
    expect(typeof JSON.parse(typed.choices[0]?.message.content ?? "")).toBe("boolean");
  });

  it("[29] a grammar holds the text; a bad one is an error", async () => {
    const { choices } = await ask({ grammar: 'root ::= ("yes" | "no") "!"', max_tokens: 20 });
    expect(choices[0]?.message.content).toMatch(/^(yes|no)!$/u);
    expect((await refusalOf(() => ask({ grammar: "root ::= (" }))).param).toBe("grammar");
  });

  const tools = [
    {
      type: "function",
      function: {
        name: "add",
        parameters: { type: "object", properties: { a: { type: "integer" } }, required: ["a"] },
      },
    },
  ];

  it("[32] a tool is called, whole and streamed, with usage", async () => {
    const over = { tools, tool_choice: "required", max_tokens: 200 };
    const whole = await ask(over);
    const [call] = whole.choices[0]?.message.tool_calls ?? [];
    expect(call).toMatchObject({ type: "function", function: { name: "add" } });
    expect(whole.choices[0]).toMatchObject({ finish_reason: "tool_calls", message: { content: null } });
    const chunks = await chunksOf({ ...over, ...withUsage });
    const parts = chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []);
    expect(parts.map((part) => part.function?.arguments ?? "").join("")).toBe(
      call?.type === "function" ? call.function.arguments : "",
    );
    expect(parts.filter((part) => part.id !== undefined)).toHaveLength(1);
    expect(chunks.at(-1)?.usage?.completion_tokens).toBe(whole.usage?.completion_tokens);
  });

  it("[33] tool_choice null is none given", async () => {
    const [absent, none] = [await ask({ tools }), await ask({ tools, tool_choice: null })];
    expect(none.choices[0]?.message).toEqual(absent.choices[0]?.message);
  });
});

describe("embeddings", () => {
  it("[36] are longer than one and of unit length", async () => {
    const answer = await embed("a sailor on the beach");
    expect(() => embeddingResponseSchema.parse(answer)).not.toThrow();
    expect(answer.data[0]?.embedding.length).toBeGreaterThan(1);
    expect(Math.hypot(...(answer.data[0]?.embedding ?? []))).toBeCloseTo(1, 4);
  });

  it("[37] of four inputs are four, in order, and equal for equal inputs", async () => {
    const { data } = await embed(["the sea", "the snow", "the sea", "the moon"]);
    expect(data.map(({ index }) => index)).toEqual([0, 1, 2, 3]);
    expect(data[2]?.embedding).toEqual(data[0]?.embedding);
    expect(data[1]?.embedding).not.toEqual(data[0]?.embedding);
  });

  it("[38] take token ids, lists of them, and texts among them; an empty list is 400", async () => {
    const [one] = (await embed([300, 301, 302])).data;
    const { data } = await embed([
      [300, 301, 302],
      [303, 304],
    ]);
    expect(data[0]?.embedding).toEqual(one?.embedding);
    const { data: both } = await embed(["the sea", [300, 301, 302]]);
    expect(both.map(({ embedding }) => embedding)).toEqual([
      (await embed("the sea")).data[0]?.embedding,
      one?.embedding,
    ]);
    expect((await refusalOf(() => embed([]))).param).toBe("input");
  });

  it("[39] hold the same in base64", async () => {
    const numbers = (await embed("the sea")).data[0]?.embedding ?? [];
    // The client asks for base64 by itself where no format is named, and reads it.
    const { data } = await client.embeddings.create({ model: DEMO_MODEL, input: "the sea" });
    expect(data[0]?.embedding).toHaveLength(numbers.length);
    data[0]?.embedding.forEach((value, i) => expect(Math.abs(value - (numbers[i] ?? NaN))).toBeLessThan(1e-3));
  });

  it("[40] count their prompts, summed over the batch", async () => {
    const [a, b] = [await embed("the sea"), await embed("the snow fell on the garden")];
    const both = await embed(["the sea", "the snow fell on the garden"]);
    expect(both.usage.prompt_tokens).toBe(a.usage.prompt_tokens + b.usage.prompt_tokens);
    expect(both.usage.total_tokens).toBe(both.usage.prompt_tokens);
  });

  it("[41] of too long an input are refused by its place", async () => {
    const error = await refusalOf(() => embed(["the sea", "sea ".repeat(3_000)]));
    expect(error.param).toBe("input[1]");
    expect(error.message).toMatch(/\d{3,}/u);
  });
});
