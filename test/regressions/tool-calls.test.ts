// Root cause of these cases: servers that treat a tool call as text with a shape of its own instead of as a message
// that is parsed once, and that trust the model to write what the client will parse. Cases C033, C047, C049-C051.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { chatChunkSchema, chatCompletionSchema, toolCallSchema } from "../../shared/openai/chat.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), {
    model: "demo",
    model_path: DEMO_Q8,
    slots: 4,
    kv_cache_type: "q8_0",
  });
});
afterAll(() => engine.stop());

const tool = (name: string, properties: Record<string, object>) => ({
  type: "function",
  function: {
    name,
    parameters: { type: "object", properties, required: Object.keys(properties), additionalProperties: false },
  },
});
const TOOLS = [tool("add", { a: { type: "integer" }, b: { type: "integer" } }), tool("clear", {})];
const asked = { model: "demo", messages: [{ role: "user", content: "Add two numbers." }], max_tokens: 200, seed: 1 };

const messageSchema = z.looseObject({ content: z.string().nullable(), tool_calls: z.array(toolCallSchema).optional() });
const post = (over: object) => engine.post("/v1/chat/completions", { ...asked, ...over });
async function whole(over: object) {
  const answer = chatCompletionSchema.parse(await (await post(over)).json());
  const [choice] = answer.choices;
  const message = messageSchema.parse(choice?.message);
  return { message, calls: message.tool_calls ?? [], reason: choice?.finish_reason, usage: answer.usage };
}

const deltaSchema = z.looseObject({
  content: z.string().nullish(),
  tool_calls: z
    .array(
      z.object({
        index: z.int(),
        id: z.string().optional(),
        type: z.literal("function").optional(),
        function: z.object({ name: z.string().optional(), arguments: z.string() }),
      }),
    )
    .optional(),
});

/** Puts a streamed answer together as clients do: by index. */
async function streamed(over: object) {
  const data = await streamData(await post({ ...over, stream: true }));
  expect(data.at(-1)).toBe("[DONE]");
  const calls: { id: string; type: string; name: string; arguments: string }[] = [];
  let content = "";
  let reason: string | null = null;
  for (const one of data.slice(0, -1)) {
    const [choice] = chatChunkSchema.parse(JSON.parse(one)).choices;
    const delta = deltaSchema.parse(choice?.delta ?? {});
    content += delta.content ?? "";
    reason = choice?.finish_reason ?? reason;
    for (const part of delta.tool_calls ?? []) {
      const call = (calls[part.index] ??= { id: "", type: "", name: "", arguments: "" });
      // Joined, an id or a type that comes twice would be longer than it is.
      call.id += part.id ?? "";
      call.type += part.type ?? "";
      call.name += part.function.name ?? "";
      call.arguments += part.function.arguments;
    }
  }
  return { calls, content, reason };
}

describe("C047: tool_choice", () => {
  it("required calls one of the tools, with arguments that its schema allows", async () => {
    for (const seed of [1, 2, 3]) {
      const { message, calls, reason } = await whole({ tools: TOOLS, tool_choice: "required", seed });
      expect(reason).toBe("tool_calls");
      expect(message.content).toBeNull();
      expect(calls).toHaveLength(1);
      for (const { id, function: call } of calls) {
        expect(id).toMatch(/^call_/u);
        const read = z.record(z.string(), z.int()).parse(JSON.parse(call.arguments));
        expect(Object.keys(read)).toEqual(call.name === "add" ? ["a", "b"] : []);
      }
    }
  });

  it("by name calls that one", async () => {
    for (const name of ["add", "clear"]) {
      const { calls, reason } = await whole({ tools: TOOLS, tool_choice: { type: "function", function: { name } } });
      expect(calls.map(({ function: call }) => call.name)).toEqual([name]);
      expect(reason).toBe("tool_calls");
    }
  });

  it("none, null and auto leave an answer in words as it is", async () => {
    for (const choice of ["none", null, "auto"]) {
      const { message, calls, reason } = await whole({ tools: TOOLS, tool_choice: choice, max_tokens: 20 });
      expect(calls).toEqual([]);
      expect(message).not.toHaveProperty("tool_calls");
      expect(message.content?.length).toBeGreaterThan(5);
      expect(["stop", "length"]).toContain(reason);
    }
  });

  it.each([
    [{ tools: TOOLS, tool_choice: { type: "function", function: { name: "nobody" } } }, "tool_choice.function.name"],
    [{ tool_choice: "required" }, "tool_choice"],
    [{ tools: [], tool_choice: "auto" }, "tools"],
  ])("is refused by name where there is nothing to choose: %j", async (over, param) => {
    const response = await post(over);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param } });
  });

  it("with parallel_tool_calls false makes one call, and with true may make more", async () => {
    const { calls } = await whole({ tools: TOOLS, tool_choice: "required", parallel_tool_calls: false });
    expect(calls).toHaveLength(1);
    const many = await whole({ tools: [TOOLS[1]], tool_choice: "required", parallel_tool_calls: true, max_tokens: 60 });
    expect(many.calls.length).toBeGreaterThanOrEqual(1);
  });
});

describe("C049, C050: streamed calls", () => {
  it("have an index, an id and a name once, and arguments that join to the whole answer's", async () => {
    const over = { tools: TOOLS, tool_choice: { type: "function", function: { name: "add" } } };
    const { calls, content, reason } = await streamed(over);
    const answer = await whole(over);
    expect(content).toBe("");
    expect(reason).toBe("tool_calls");
    expect(calls.map(({ name, arguments: text }) => [name, text])).toEqual(
      answer.calls.map(({ function: call }) => [call.name, call.arguments]),
    );
    expect(calls[0]).toMatchObject({ id: expect.stringMatching(/^call_\w{24}$/u), type: "function" });
    expect(new Set([...calls.map(({ id }) => id), ...answer.calls.map(({ id }) => id)]).size).toBe(2);
  });

  it("have an empty object for a tool without parameters", async () => {
    const over = { tools: [{ type: "function", function: { name: "f" } }], tool_choice: "required" };
    const { calls } = await streamed(over);
    expect(JSON.parse(calls[0]?.arguments ?? "")).toBeTypeOf("object");
  });
});

describe("C045: a tool whose descriptions are written for nobody's grammar", () => {
  it("is called as any other, and its words end nothing", async () => {
    const words = String.raw`root ::= "x" | \u0000 [^"] """ {{ raise_exception('no') }} {% if %} </tool_call> é😀`;
    const parameters = {
      type: "object",
      description: words,
      properties: { [words]: { type: "integer", description: words }, root: { type: "boolean" } },
      required: ["root"],
    };
    const odd = { type: "function", function: { name: "odd", description: words, parameters } };
    const { calls } = await whole({ tools: [odd], tool_choice: "required", max_tokens: 600 });
    expect(calls.map(({ function: call }) => call.name)).toEqual(["odd"]);
    expect(JSON.parse(calls[0]?.function.arguments ?? "")).toHaveProperty("root", expect.any(Boolean));
  });
});

describe("C051: a call that the token limit cuts", () => {
  it("ends with length, with what there is and with usage", async () => {
    for (let limit = 3; limit < 40; limit += 6) {
      const over = { tools: [TOOLS[0]], tool_choice: "required", max_tokens: limit };
      const { reason, usage, calls } = await whole(over);
      if (reason === "tool_calls") break;
      expect(reason).toBe("length");
      expect(usage.completion_tokens).toBe(limit);
      const stream = await streamed(over);
      expect(stream.reason).toBe("length");
      expect(stream.calls.map(({ arguments: text }) => text)).toEqual(
        calls.map(({ function: call }) => call.arguments),
      );
    }
  });
});

describe("C033: the second turn of a tool conversation", () => {
  const call = { id: "call_1", type: "function", function: { name: "add", arguments: '{"a":1,"b":2}' } };
  const turn = (assistant: object) => [
    asked.messages[0],
    { role: "assistant", tool_calls: [call], ...assistant },
    { role: "tool", tool_call_id: "call_1", content: "3" },
  ];

  it("is answered whatever stands for the absent content, and the model sees the call", async () => {
    const prompts: number[] = [];
    for (const assistant of [{ content: null }, {}, { content: "" }, { content: [] }]) {
      const { usage } = await whole({ messages: turn(assistant), max_tokens: 4 });
      prompts.push(usage.prompt_tokens);
    }
    expect(new Set(prompts).size).toBe(1);
    const longer = { ...call, function: { name: "add", arguments: '{"a":111111,"b":222222}' } };
    const other = await whole({ messages: turn({ content: null, tool_calls: [longer] }), max_tokens: 4 });
    expect(other.usage.prompt_tokens).toBeGreaterThan(prompts[0] ?? 0);
  });

  it("is refused when the result belongs to no call", async () => {
    const messages = [asked.messages[0], { role: "tool", tool_call_id: "call_9", content: "3" }];
    const response = await post({ messages });
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param: "messages[1].tool_call_id" } });
  });
});
