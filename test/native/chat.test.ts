import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import type { NativeChat, NativeModel } from "../../backend/native/binding.ts";
import { DEMO_Q8, GREEDY, NativeSession, openModel } from "../support/native-harness.ts";

const messageSchema = z.object({
  role: z.literal("assistant"),
  content: z.string().nullish(),
  tool_calls: z.array(z.object({ function: z.object({ name: z.string(), arguments: z.string() }) })).optional(),
});

const ADD_TOOL = {
  type: "function",
  function: {
    name: "add",
    description: "adds two numbers",
    parameters: { type: "object", properties: { a: { type: "integer" } }, required: ["a"] },
  },
};

/** The library learns a model's way of calling tools from its template, so one that can is needed here. */
const TOOL_TEMPLATE = `{%- if tools %}{{- '<|im_start|>system\\nTools:\\n' }}
{%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- if message.tool_calls %}{%- for call in message.tool_calls %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`;

describe("chat through libllama-common", () => {
  let model: NativeModel;
  let chat: NativeChat;
  beforeAll(async () => {
    model = await openModel(DEMO_Q8);
    chat = model.openChat(null);
  });
  afterAll(async () => {
    await model.dispose();
  });

  const apply = (request: object) => chat.apply(JSON.stringify({ add_generation_prompt: true, ...request }));

  it("renders plainly what it renders with an analysis, and tells the prompt alone", () => {
    const messages = [
      { role: "system", content: "Be brief." },
      { role: "user", content: "Hello" },
    ];
    const template = model.openChat(TOOL_TEMPLATE);
    for (const one of [chat, template]) {
      const asked = (plain: boolean) => one.apply(JSON.stringify({ messages, add_generation_prompt: true, plain }));
      const [full, plain] = [asked(false), asked(true)];
      expect(plain.prompt).toBe(full.prompt);
      expect(plain.prompt).toContain("Be brief.");
      expect([plain.grammar, plain.additionalStops, plain.supportsThinking]).toEqual(["", [], false]);
      expect(plain.parser).not.toBe(full.parser);
    }
  });

  it("applies the model's own template", () => {
    const applied = apply({
      messages: [
        { role: "system", content: "be brief" },
        { role: "user", content: [{ type: "text", text: "hello" }] },
      ],
    });
    expect(applied.prompt).toBe(
      "<|im_start|>system\nbe brief<|im_end|>\n<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
    );
    expect(applied.grammar).toBe("");
  });

  it("leaves the prompt open when no generation prompt is asked for", () => {
    const applied = apply({ messages: [{ role: "user", content: "hello" }], add_generation_prompt: false });
    expect(applied.prompt.endsWith("<|im_end|>\n")).toBe(true);
  });

  it("applies another template when one is given", () => {
    const other = model.openChat("{% for m in messages %}[{{ m.role }}] {{ m.content }}\n{% endfor %}");
    expect(other.apply(JSON.stringify({ messages: [{ role: "user", content: "x" }] })).prompt).toBe("[user] x\n");
  });

  it("turns tools into a grammar, and their calls back into an OpenAI message", () => {
    const toolChat = model.openChat(TOOL_TEMPLATE);
    const applied = toolChat.apply(
      JSON.stringify({ messages: [{ role: "user", content: "add 5" }], tools: [ADD_TOOL], tool_choice: "required" }),
    );
    expect(applied.prompt).toContain('"name": "add"');
    model.checkGrammar(applied.grammar, "root");
    const answer = '<tool_call>\n{"name": "add", "arguments": {"a": 5}}\n</tool_call>';
    const message = messageSchema.parse(JSON.parse(toolChat.parse(answer, false, applied.parser)));
    const call = message.tool_calls?.[0]?.function;
    expect(call?.name).toBe("add");
    expect(JSON.parse(call?.arguments ?? "null")).toEqual({ a: 5 });
  });

  it("waits for its trigger where the model may choose between text and a tool call", () => {
    const request = { messages: [{ role: "user", content: "add 5" }], tools: [ADD_TOOL] };
    const applied = model.openChat(TOOL_TEMPLATE).apply(JSON.stringify(request));
    expect(applied.grammarLazy).toBe(true);
    expect(applied.grammarTriggers).toContain("<tool_call>");
  });

  it("turns a schema into a grammar that holds the answer to it", async () => {
    const applied = apply({
      messages: [{ role: "user", content: "give me JSON" }],
      json_schema: { type: "object", properties: { a: { enum: ["sea", "snow"] } }, required: ["a"] },
    });
    const session = await NativeSession.open(model);
    const { grammar, grammarLazy, grammarTriggers } = applied;
    const outcome = await session.run({
      tokens: model.tokenize(applied.prompt, true, true),
      maxTokens: 200,
      sampler: { ...GREEDY, temperature: 0.8, seed: 3, grammar, grammarLazy, grammarTriggers },
    });
    await session.context.dispose();
    expect(outcome.finished.reason).toBe("end_of_generation");
    expect(["sea", "snow"]).toContain(z.object({ a: z.string() }).parse(JSON.parse(outcome.text.toString())).a);
  });

  it("parses plain text into an assistant message, whole and partial", () => {
    const { parser } = apply({ messages: [{ role: "user", content: "hi" }] });
    for (const partial of [true, false]) {
      const message = messageSchema.parse(JSON.parse(chat.parse("Once upon", partial, parser)));
      expect(message).toEqual({ role: "assistant", content: "Once upon" });
    }
  });

  it.each([
    ["no JSON", "{"],
    ["no messages", "{}"],
    ["a message without a role", '{"messages":[{"content":"x"}]}'],
    ["an image", '{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"x"}}]}]}'],
  ])("refuses %s with template_failed", (_, request) => {
    expect(() => chat.apply(request)).toThrow(expect.objectContaining({ code: "template_failed" }));
  });

  it("refuses a template that does not parse", () => {
    expect(() => model.openChat("{% for %}")).toThrow(expect.objectContaining({ code: "template_failed" }));
  });
});
