// LangChain through edge, host and native engine; numbers in brackets as in sixty-assertions-engine.test.ts.
import { AIMessage, AIMessageChunk, HumanMessage, SystemMessage, ToolMessage } from "@langchain/core/messages";
import { tool } from "@langchain/core/tools";
import { ChatOpenAI, OpenAI as CompletionModel, OpenAIEmbeddings } from "@langchain/openai";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { DEMO_MODEL, Stack, until } from "../support/stack.ts";

describe("LangChain, through the edge to the native engine", () => {
  let stack: Stack;
  beforeAll(async () => {
    stack = await Stack.start();
  });
  afterAll(() => stack.stop());

  const settings = () => ({
    model: DEMO_MODEL,
    apiKey: stack.key,
    configuration: { baseURL: stack.baseUrl },
    maxRetries: 0,
  });
  const chat = (over: object = {}) => new ChatOpenAI({ ...settings(), temperature: 0, maxTokens: 24, ...over });
  const question = "Tell me a story.";

  const numbers = z.object({ a: z.int(), b: z.int() });
  const sum = (input: unknown) => {
    const { a, b } = numbers.parse(input);
    return String(a + b);
  };
  const add = tool(sum, { name: "add", description: "Adds two numbers.", schema: numbers });

  it("[1] [11] [15] gets a message with its finish and its usage", async () => {
    const message = await chat({ modelKwargs: { ignore_eos: true } }).invoke(question);
    expect(message.text.length).toBeGreaterThan(10);
    expect(message.response_metadata).toMatchObject({ finish_reason: "length", model_name: DEMO_MODEL });
    const { input_tokens: input = NaN, output_tokens: output, total_tokens: total } = message.usage_metadata ?? {};
    expect([output, total]).toEqual([24, input + 24]);
  });

  it("[9] [10] [13] streams the same, with usage once", async () => {
    const whole = await chat().invoke(question);
    let joined: AIMessageChunk | null = null;
    for await (const chunk of await chat().stream(question)) joined = joined === null ? chunk : joined.concat(chunk);
    expect(joined?.text).toBe(whole.text);
    expect(joined?.usage_metadata).toMatchObject({
      input_tokens: whole.usage_metadata?.input_tokens,
      output_tokens: whole.usage_metadata?.output_tokens,
    });
    expect(joined?.response_metadata["finish_reason"]).toBe(whole.response_metadata["finish_reason"]);
  });

  it("sends a conversation of all roles, and texts in parts", async () => {
    const parts = [
      { type: "text", text: "Tell me " },
      { type: "text", text: "a story." },
    ];
    const conversation = [
      new SystemMessage("You tell stories."),
      new HumanMessage(question),
      new AIMessage("Once."),
      new HumanMessage({ content: parts }),
    ];
    const joined = [...conversation.slice(0, -1), new HumanMessage(question)];
    const [inParts, inOne] = [await chat().invoke(conversation), await chat().invoke(joined)];
    expect(inParts.text).toBe(inOne.text);
    expect(inParts.usage_metadata?.input_tokens).toBe(inOne.usage_metadata?.input_tokens);
  });

  it("passes on steering, and is not answered unsteered", async () => {
    const steering = { sae_id: "demo-l1", features: [{ index: 501, strength: 40 }] };
    const steered = await chat({ modelKwargs: { steering } }).invoke(question);
    expect(steered.text).not.toBe((await chat().invoke(question)).text);
  });

  it("[32] calls a tool and goes on with its result", async () => {
    const calling = await chat({ maxTokens: 200 }).bindTools([add], { tool_choice: "required" }).invoke(question);
    expect(calling.response_metadata["finish_reason"]).toBe("tool_calls");
    const [call] = calling.tool_calls ?? [];
    expect(call).toMatchObject({ name: "add", id: expect.stringMatching(/^call_/u) });
    const args = numbers.parse(call?.args);
    const result: unknown = await add.invoke({ ...call, type: "tool_call", name: "add", args });
    if (!(result instanceof ToolMessage)) throw new Error("no tool message");
    expect(result.content).toBe(sum(args));
    const next = await chat().bindTools([add], { tool_choice: "none" }).invoke([question, calling, result]);
    expect(next.text.length).toBeGreaterThan(0);
  });

  it("[32] streams a call as it is written", async () => {
    const caller = chat({ maxTokens: 200 }).bindTools([add], { tool_choice: "add" });
    let joined: AIMessageChunk | null = null;
    for await (const chunk of await caller.stream(question)) {
      if (!(chunk instanceof AIMessageChunk)) throw new Error("no message chunk");
      joined = joined === null ? chunk : joined.concat(chunk);
    }
    expect(joined?.tool_calls).toEqual([expect.objectContaining({ name: "add", args: expect.any(Object) })]);
    const [parts] = joined?.tool_call_chunks ?? [];
    expect(JSON.parse(parts?.args ?? "")).toEqual(joined?.tool_calls?.[0]?.args);
  });

  it("[28] gets an object that its schema describes", async () => {
    const schema = z.object({ calm: z.boolean(), size: z.enum(["small", "large"]) });
    for (const method of ["jsonSchema", "functionCalling"] as const) {
      const object: unknown = await chat({ maxTokens: 200 }).withStructuredOutput(schema, { method }).invoke(question);
      expect(schema.safeParse(object).success).toBe(true);
    }
  });

  it("[22] gets log-probabilities", async () => {
    const message = await chat({ logprobs: true, topLogprobs: 2 }).invoke(question);
    const told = z
      .object({ content: z.array(z.object({ token: z.string(), top_logprobs: z.array(z.unknown()).length(2) })) })
      .parse(message.response_metadata["logprobs"]);
    expect(told.content.map(({ token }) => token).join("")).toBe(message.text);
  });

  it("completes a prompt on the older route", async () => {
    const model = new CompletionModel({ ...settings(), temperature: 0, maxTokens: 12 });
    const text = await model.invoke("Once upon a time");
    let streamed = "";
    for await (const part of await model.stream("Once upon a time")) streamed += part;
    expect(text.length).toBeGreaterThan(5);
    expect(streamed).toBe(text);
  });

  it("aborts a stream, and the slot is free again", async () => {
    const controller = new AbortController();
    const model = chat({ maxTokens: 900, modelKwargs: { ignore_eos: true } });
    const reading = async () => {
      for await (const chunk of await model.stream(question, { signal: controller.signal })) {
        if (chunk.text !== "") controller.abort();
      }
    };
    await expect(reading()).rejects.toThrow(/abort/iu);
    await until("nothing is in flight", async () => {
      const lines = await stack.metric(/^steerage_requests_in_flight(\{|\s)/);
      return lines.length > 0 && lines.every((line) => line.endsWith(" 0"));
    });
  });

  it("[34] raises errors with our status and code", async () => {
    await expect(chat({ model: "nope" }).invoke(question)).rejects.toMatchObject({
      status: 404,
      code: "model_not_found",
    });
    await expect(chat().invoke("sea ".repeat(5_000))).rejects.toMatchObject({
      status: 400,
      code: "context_length_exceeded",
    });
    const stranger = `sk-st-${"a".repeat(12)}-${"b".repeat(43)}`;
    await expect(chat({ apiKey: stranger }).invoke(question)).rejects.toMatchObject({ status: 401 });
  });

  it("[36] [37] embeds a question and documents, in order", async () => {
    const embeddings = new OpenAIEmbeddings(settings());
    const [one, many] = [
      await embeddings.embedQuery("the sea"),
      await embeddings.embedDocuments(["the snow", "the sea"]),
    ];
    expect(many).toHaveLength(2);
    expect(Math.hypot(...one)).toBeCloseTo(1, 4);
    expect(many[1]).toEqual(one);
  });
});
