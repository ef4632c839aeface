import OpenAI, { APIUserAbortError, AuthenticationError, BadRequestError, NotFoundError } from "openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DEMO_MODEL, Stack, until } from "../support/stack.ts";

describe("the openai client, through the edge to the native engine", () => {
  let stack: Stack;
  let client: OpenAI;
  const story = {
    model: DEMO_MODEL,
    messages: [{ role: "user" as const, content: "Tell me a story." }],
    temperature: 0,
  };

  beforeAll(async () => {
    stack = await Stack.start();
    client = new OpenAI({ baseURL: stack.baseUrl, apiKey: stack.key, maxRetries: 0 });
  });
  afterAll(() => stack.stop());

  it("gets the model list with what each can do", async () => {
    const models = await client.models.list();
    expect(models.data.map((model) => model.id)).toContain(DEMO_MODEL);
    const one = await client.models.retrieve(DEMO_MODEL);
    expect(JSON.stringify(one)).toContain("demo-l1");
  });

  it("streams the text that a whole answer has, with one usage chunk when asked", async () => {
    const whole = await client.chat.completions.create({ ...story, max_tokens: 40 });
    const stream = await client.chat.completions.create({
      ...story,
      max_tokens: 40,
      stream: true,
      stream_options: { include_usage: true },
    });
    let text = "";
    const usages = [];
    const finishes = [];
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      if (chunk.usage) usages.push(chunk.usage);
      if (chunk.choices[0]?.finish_reason) finishes.push(chunk.choices[0].finish_reason);
    }
    expect(text).toBe(whole.choices[0]?.message.content);
    expect(finishes).toEqual([whole.choices[0]?.finish_reason]);
    expect(usages).toHaveLength(1);
    expect(usages[0]).toMatchObject({
      completion_tokens: whole.usage?.completion_tokens ?? -1,
      prompt_tokens: whole.usage?.prompt_tokens ?? -1,
    });
  });

  it("steers and senses through members the client does not know", async () => {
    const body = {
      ...story,
      max_tokens: 20,
      steering: { sae_id: "demo-l1", features: [{ index: 501, strength: 40 }] },
      return_sae_activations: { sae_id: "demo-l1", features: [501], positions: "prompt" },
    };
    const { data, response } = await client.chat.completions.create(body).withResponse();
    expect(response.headers.get("x-steerage-steering")).toMatch(
      /^inline;sae="demo-l1";layer=1;features=1;hash="[0-9a-f]{64}"$/,
    );
    expect(data).toMatchObject({
      steerage: { activations: { sae_id: "demo-l1", layer: 1, read_point: "post_steering" } },
    });
  });

  it("aborts a stream, and the slot is free again", async () => {
    const endless = { ...story, max_tokens: 900, ignore_eos: true };
    const stream = await client.chat.completions.create({ ...endless, stream: true });
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content) break;
    }
    await until("nothing is in flight", async () => {
      const lines = await stack.metric(/^steerage_requests_in_flight(\{|\s)/);
      return lines.length > 0 && lines.every((line) => line.endsWith(" 0"));
    });
    const controller = new AbortController();
    const pending = client.chat.completions.create(endless, { signal: controller.signal });
    setTimeout(() => controller.abort(), 20);
    await expect(pending).rejects.toThrow(APIUserAbortError);
  });

  it("gets the same vectors as base64, the client's own default, and as numbers", async () => {
    const input = ["a sailor on the beach", "the snow fell"];
    const decoded = await client.embeddings.create({ model: DEMO_MODEL, input });
    const numbers = await client.embeddings.create({ model: DEMO_MODEL, input, encoding_format: "float" });
    expect(decoded.data).toHaveLength(2);
    decoded.data.forEach(({ embedding }, i) => {
      expect(Math.hypot(...embedding)).toBeCloseTo(1, 3);
      embedding.forEach((value, j) => expect(value).toBeCloseTo(numbers.data[i]?.embedding[j] ?? Number.NaN, 5));
    });
  });

  it("raises its own error classes, with our codes", async () => {
    const other = new OpenAI({
      baseURL: stack.baseUrl,
      apiKey: `sk-st-${"a".repeat(12)}-${"b".repeat(43)}`,
      maxRetries: 0,
    });
    await expect(other.models.list()).rejects.toThrow(AuthenticationError);
    await expect(client.chat.completions.create({ ...story, model: "nope" })).rejects.toMatchObject({
      constructor: NotFoundError,
      code: "model_not_found",
    });
    await expect(client.chat.completions.create({ ...story, max_tokens: -1 })).rejects.toMatchObject({
      constructor: BadRequestError,
      param: "max_tokens",
    });
    const long = { ...story, messages: [{ role: "user" as const, content: "sea ".repeat(5_000) }] };
    await expect(client.chat.completions.create({ ...long, stream: true })).rejects.toMatchObject({
      constructor: BadRequestError,
      code: "context_length_exceeded",
    });
  });
});
