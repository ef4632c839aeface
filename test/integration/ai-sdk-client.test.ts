// The AI SDK through edge, host and native engine; numbers in brackets as in sixty-assertions-engine.test.ts.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { APICallError, embed, embedMany, generateObject, generateText, streamText, tool } from "ai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { fetchFrom, openEngine, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";
import { DEMO_MODEL, Stack, until } from "../support/stack.ts";
import { addonWithTemplate } from "../support/template-addon.ts";
import { THINKING_TEMPLATE, THINKS } from "../support/thinking-model.ts";

const PROVIDER = "steerage";
/** Members of a request that the SDK has no setting for. */
const extra = (members: Record<string, string | number | boolean>) => ({ providerOptions: { [PROVIDER]: members } });

describe("the AI SDK, through the edge to the native engine", () => {
  let stack: Stack;
  let provider: ReturnType<typeof createOpenAICompatible>;
  const asked = { prompt: "Tell me a story.", temperature: 0, maxOutputTokens: 24, maxRetries: 0 };
  const story = () => ({ ...asked, model: provider(DEMO_MODEL) });

  beforeAll(async () => {
    stack = await Stack.start();
    provider = createOpenAICompatible({
      name: PROVIDER,
      baseURL: stack.baseUrl,
      apiKey: stack.key,
      includeUsage: true,
      supportsStructuredOutputs: true,
    });
  });
  afterAll(() => stack.stop());

  it("[1] [11] [15] gets a text, its finish and its usage", async () => {
    const { text, finishReason, usage, response } = await generateText({ ...story(), ...extra({ ignore_eos: true }) });
    expect(text.length).toBeGreaterThan(10);
    expect(finishReason).toBe("length");
    expect(usage.outputTokens).toBe(24);
    expect(usage.totalTokens).toBe((usage.inputTokens ?? NaN) + 24);
    expect(response.id).toMatch(/^chatcmpl-/u);
    expect(response.modelId).toBe(DEMO_MODEL);
  });

  it("[9] [10] [13] streams the same, with usage at the end", async () => {
    const whole = await generateText(story());
    const stream = streamText(story());
    const parts: string[] = [];
    for await (const part of stream.textStream) parts.push(part);
    expect(parts.join("")).toBe(whole.text);
    expect(await stream.finishReason).toBe(whole.finishReason);
    const { inputTokens, outputTokens } = await stream.usage;
    expect([inputTokens, outputTokens]).toEqual([whole.usage.inputTokens, whole.usage.outputTokens]);
  });

  it("passes on steering, and reads the receipt from the answer's headers", async () => {
    const steering = { steering: { sae_id: "demo-l1", features: [{ index: 501, strength: 40 }] } };
    const steered = await generateText({ ...story(), providerOptions: { [PROVIDER]: steering } });
    expect(steered.response.headers?.["x-steerage-steering"]).toMatch(/^inline;sae="demo-l1"/u);
    expect(steered.text).not.toBe((await generateText(story())).text);
  });

  const tools = {
    add: tool({
      description: "Adds two numbers.",
      inputSchema: z.object({ a: z.int(), b: z.int() }),
      execute: ({ a, b }) => Promise.resolve(a + b),
    }),
  };

  it("[32] calls a tool, runs it and gives its result", async () => {
    const called = await generateText({ ...story(), tools, toolChoice: "required", maxOutputTokens: 200 });
    expect(called.finishReason).toBe("tool-calls");
    const [call] = called.toolCalls;
    const [result] = called.toolResults;
    expect(call).toMatchObject({ toolName: "add", toolCallId: expect.stringMatching(/^call_/u) });
    const { a, b } = z.object({ a: z.int(), b: z.int() }).parse(call?.input);
    expect(result?.output).toBe(a + b);
  });

  it("[32] streams a call as it is written, each with one id", async () => {
    const stream = streamText({
      ...story(),
      tools,
      toolChoice: { type: "tool", toolName: "add" },
      maxOutputTokens: 200,
    });
    const begun: string[] = [];
    const deltas = new Map<string, string>();
    let called: unknown = null;
    for await (const part of stream.fullStream) {
      if (part.type === "tool-input-start") begun.push(part.id);
      if (part.type === "tool-input-delta") deltas.set(part.id, (deltas.get(part.id) ?? "") + part.delta);
      if (part.type === "tool-call") called = part.input;
    }
    expect(begun).toHaveLength(1);
    expect([...deltas.keys()]).toEqual(begun);
    expect(JSON.parse(deltas.get(begun[0] ?? "") ?? "")).toEqual(called);
    expect((await stream.usage).outputTokens).toBeGreaterThan(5);
  });

  it("takes back the result of a tool as a message", async () => {
    const messages = [
      { role: "user" as const, content: "Add 1 and 2." },
      {
        role: "assistant" as const,
        content: [{ type: "tool-call" as const, toolCallId: "call_1", toolName: "add", input: { a: 1, b: 2 } }],
      },
      {
        role: "tool" as const,
        content: [
          {
            type: "tool-result" as const,
            toolCallId: "call_1",
            toolName: "add",
            output: { type: "json" as const, value: 3 },
          },
        ],
      },
    ];
    const { prompt: _, ...rest } = story();
    const { text, usage } = await generateText({ ...rest, messages, tools, toolChoice: "none" });
    expect(text.length).toBeGreaterThan(0);
    expect(usage.outputTokens).toBe(24);
  });

  it("[28] gets an object that its schema describes", async () => {
    const schema = z.object({ calm: z.boolean(), size: z.enum(["small", "large"]) });
    const { object, finishReason } = await generateObject({ ...story(), maxOutputTokens: 200, schema });
    expect(schema.safeParse(object).success).toBe(true);
    expect(finishReason).toBe("stop");
  });

  it("aborts a stream, and the slot is free again", async () => {
    const controller = new AbortController();
    const stream = streamText({
      ...story(),
      maxOutputTokens: 900,
      ...extra({ ignore_eos: true }),
      abortSignal: controller.signal,
    });
    const seen: string[] = [];
    for await (const part of stream.fullStream) {
      seen.push(part.type);
      if (part.type === "text-delta") controller.abort();
    }
    expect(seen.at(-1)).toBe("abort");
    await until("nothing is in flight", async () => {
      const lines = await stack.metric(/^steerage_requests_in_flight(\{|\s)/);
      return lines.length > 0 && lines.every((line) => line.endsWith(" 0"));
    });
  });

  it("[34] raises its error class with our status and words", async () => {
    const stranger = createOpenAICompatible({
      name: PROVIDER,
      baseURL: stack.baseUrl,
      apiKey: `sk-st-${"a".repeat(12)}-${"b".repeat(43)}`,
    });
    await expect(generateText({ ...asked, model: stranger(DEMO_MODEL) })).rejects.toMatchObject({ statusCode: 401 });
    await expect(generateText({ ...asked, model: provider("nope") })).rejects.toMatchObject({ statusCode: 404 });
    const tooLong = generateText({ ...story(), prompt: "sea ".repeat(5_000) });
    const error: unknown = await tooLong.catch((thrown: unknown) => thrown);
    expect(APICallError.isInstance(error)).toBe(true);
    expect(error).toMatchObject({ statusCode: 400, isRetryable: false, message: expect.stringMatching(/\d{3,}/u) });
    const errors: unknown[] = [];
    const stream = streamText({
      ...story(),
      prompt: "sea ".repeat(5_000),
      onError: ({ error: told }) => void errors.push(told),
    });
    await stream.consumeStream();
    expect(errors).toEqual([expect.objectContaining({ statusCode: 400 })]);
  });

  it("[36] [37] [40] embeds one text and many, in order, with their tokens", async () => {
    const model = provider.textEmbeddingModel(DEMO_MODEL);
    const one = await embed({ model, value: "the sea" });
    const many = await embedMany({ model, values: ["the snow", "the sea"] });
    expect(many.embeddings).toHaveLength(2);
    expect(Math.hypot(...one.embedding)).toBeCloseTo(1, 4);
    expect(many.embeddings[1]).toEqual(one.embedding);
    expect(many.usage.tokens).toBeGreaterThan(one.usage.tokens);
  });
});

describe("the AI SDK, at an engine whose model thinks", () => {
  let engine: EngineHarness;
  const story = () => ({
    model: createOpenAICompatible({ name: PROVIDER, baseURL: "http://engine/v1", fetch: fetchFrom(engine) })("demo"),
    prompt: "How is it?",
    maxOutputTokens: 120,
    seed: 3,
    ...extra({ grammar: THINKS }),
  });
  beforeAll(async () => {
    const addon = addonWithTemplate(await nativeAddon(), THINKING_TEMPLATE);
    engine = await openEngine(addon, { model: "demo", model_path: DEMO_Q8 });
  });
  afterAll(() => engine.stop());

  it("tells reasoning apart from the text, whole and streamed", async () => {
    const whole = await generateText(story());
    expect(whole.text).toMatch(/^It is (calm|wild)\.$/u);
    expect(whole.reasoningText).toMatch(/^The sea /u);
    const stream = streamText(story());
    const order: string[] = [];
    for await (const part of stream.fullStream) {
      if (part.type === "reasoning-delta" || part.type === "text-delta") order.push(part.type);
    }
    expect(order.lastIndexOf("reasoning-delta")).toBeLessThan(order.indexOf("text-delta"));
    expect(await stream.text).toBe(whole.text);
    expect((await stream.reasoningText)?.trim()).toBe(whole.reasoningText?.trim());
  });
});
