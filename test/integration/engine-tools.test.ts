import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { chatCompletionSchema } from "../../shared/openai/chat.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { bytesOf, EOS, scriptedAddon, ScriptedModel, type ScriptedContext } from "../support/scripted-native.ts";

let model: ScriptedModel;
let engine: EngineHarness;
const context = (): ScriptedContext => {
  if (model.context === null) throw new Error("no context was made");
  return model.context;
};
beforeEach(async () => {
  model = new ScriptedModel({ trainingContextLength: 1_024 });
  model.configure = (made) => (made.auto = true);
  engine = await openEngine(scriptedAddon(model), {});
});
afterEach(() => engine.stop());

const chat = (over: object) =>
  engine.post("/v1/chat/completions", { model: "m", messages: [{ role: "user", content: "x" }], ...over });

async function chunksOf(over: object) {
  const data = await streamData(await chat({ stream: true, ...over }));
  return {
    done: data.at(-1) === "[DONE]",
    chunks: data.filter((one) => one !== "[DONE]").map((one) => JSON.parse(one)),
  };
}

const TOOL = { type: "function", function: { name: "add", parameters: { type: "object", properties: { a: {} } } } };
const callText = (json: string) => `<tool_call>\n{"name": "add", "arguments": ${json}}\n</tool_call>`;

describe("tools that the model may call", () => {
  const asked = { tools: [TOOL], messages: [{ role: "user", content: "x" }] };

  it("are called beside words, several at once, and ended with tool_calls (C049)", async () => {
    context().reply = () => [...bytesOf(`Sure. ${callText('{"a": 1}')}\n${callText('{"a": 2}')}`), EOS];
    const answer = chatCompletionSchema.parse(await (await chat({ ...asked, parallel_tool_calls: true })).json());
    expect(answer.choices[0]).toMatchObject({
      finish_reason: "tool_calls",
      message: {
        content: "Sure. ",
        tool_calls: ['{"a": 1}', '{"a": 2}'].map((text) => ({
          type: "function",
          function: { name: "add", arguments: text },
        })),
      },
    });
    const { chunks } = await chunksOf(asked);
    const parts = chunks.flatMap(({ choices }) => choices[0]?.delta.tool_calls ?? []);
    for (const index of [0, 1]) {
      const own = parts.filter((part: { index: number }) => part.index === index);
      expect(own.filter((part: object) => "id" in part)).toHaveLength(1);
      const text = own.map((part: { function: { arguments: string } }) => part.function.arguments).join("");
      expect(JSON.parse(text)).toEqual({ a: index + 1 });
    }
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("")).toBe("Sure. ");
    expect(chunks.at(-1)?.choices[0]?.finish_reason).toBe("tool_calls");
  });

  it("are constrained only once a call begins, and at once where a call is required", async () => {
    await (await chat(asked)).json();
    await (await chat({ ...asked, tool_choice: "required" })).json();
    await (await chat({ ...asked, tool_choice: "none" })).json();
    const samplers = context().submitted.map(({ sampler }) => sampler);
    expect(samplers.map(({ grammar, grammarLazy }) => [grammar !== "", grammarLazy])).toEqual([
      [true, true],
      [true, false],
      [false, false],
    ]);
    expect(samplers[0]?.grammarTriggers).toContain("<tool_call>");
  });

  it("that were called in a way nobody can parse are plain content, never an error", async () => {
    const broken = "Sure. <tool_call>\nadd five";
    context().reply = () => [...bytesOf(broken), EOS];
    const answer = chatCompletionSchema.parse(await (await chat(asked)).json());
    expect(answer.choices[0]).toMatchObject({ finish_reason: "stop", message: { content: broken } });
    const { chunks, done } = await chunksOf(asked);
    expect(chunks.map(({ choices }) => choices[0]?.delta.content ?? "").join("")).toBe(broken);
    expect([done, chunks.at(-1)?.choices[0]?.finish_reason]).toEqual([true, "stop"]);
  });

  it("leave log-probabilities with the text they belong to", async () => {
    context().reply = () => [...bytesOf(`Hi ${callText("{}")}`), EOS];
    const { chunks } = await chunksOf({ ...asked, logprobs: true });
    const bytes = chunks.flatMap(({ choices }) =>
      (choices[0]?.logprobs?.content ?? []).flatMap((entry: { bytes: number[] }) => entry.bytes),
    );
    expect(Buffer.from(bytes).toString()).toBe(`Hi ${callText("{}")}`);
  });
});
