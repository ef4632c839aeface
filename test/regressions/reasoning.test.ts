// Root cause of these cases: reasoning told as part of the answer, or thrown away, because the marks around it were
// looked for in the text by one reader and not by another. Case C065.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { chatChunkSchema, chatCompletionSchema } from "../../shared/openai/chat.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";
import { addonWithTemplate } from "../support/template-addon.ts";
import { THINKING_TEMPLATE, THINKS } from "../support/thinking-model.ts";

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(addonWithTemplate(await nativeAddon(), THINKING_TEMPLATE), {
    model: "demo",
    model_path: DEMO_Q8,
  });
});
afterAll(() => engine.stop());

const messageSchema = z.looseObject({ content: z.string().nullable(), reasoning_content: z.string().optional() });
const deltaSchema = z.looseObject({ content: z.string().nullish(), reasoning_content: z.string().optional() });
const asked = { model: "demo", messages: [{ role: "user", content: "How is it?" }], max_tokens: 120, seed: 3 };
const post = (over: object) => engine.post("/v1/chat/completions", { ...asked, ...over });
async function whole(over: object) {
  const answer = chatCompletionSchema.parse(await (await post(over)).json());
  return { message: messageSchema.parse(answer.choices[0]?.message), answer };
}

const entriesSchema = z.looseObject({
  logprobs: z.object({ content: z.array(z.object({ bytes: z.array(z.int()) })) }),
});
/** Counted by the bytes of every token that a choice, or its deltas, told with its chances. */
function tokensBetweenMarks(parts: readonly unknown[]): number {
  const entries = parts.flatMap((part) => entriesSchema.parse(part).logprobs.content);
  const tokens = entries.map(({ bytes }) => Buffer.from(bytes).toString("latin1"));
  const text = tokens.join("");
  const start = text.indexOf("<think>") + "<think>".length;
  const end = text.includes("</think>") ? text.indexOf("</think>") : text.length;
  const begins = tokens.map((_, place) => tokens.slice(0, place).join("").length);
  return begins.filter((at, place) => at < end && at + (tokens[place]?.length ?? 0) > start).length;
}
const detailedSchema = z.looseObject({ completion_tokens_details: z.object({ reasoning_tokens: z.int() }) });
const reasoningIn = (usage: unknown): number => detailedSchema.parse(usage).completion_tokens_details.reasoning_tokens;

describe("C065: reasoning", () => {
  it("stands apart from the content, without its marks, whole and streamed, and is counted", async () => {
    const { message, answer } = await whole({ grammar: THINKS });
    expect(message.content).toMatch(/^It is (calm|wild)\.$/u);
    expect(message.reasoning_content).toMatch(/^The sea [a-z ]{5,20}\n?$/u);
    const data = await streamData(await post({ grammar: THINKS, stream: true }));
    const deltas = data
      .slice(0, -1)
      .map((one) => deltaSchema.parse(chatChunkSchema.parse(JSON.parse(one)).choices[0]?.delta ?? {}));
    expect(deltas.map(({ content }) => content ?? "").join("")).toBe(message.content);
    expect(
      deltas
        .map(({ reasoning_content: more }) => more ?? "")
        .join("")
        .trim(),
    ).toBe(message.reasoning_content?.trim());
    expect(answer.usage.completion_tokens).toBeGreaterThan(10);
  });

  it("has its own tokens told in the usage, as many as stand between the marks, whole, streamed and for every choice", async () => {
    const wishes = { grammar: THINKS, logprobs: true, n: 2, temperature: 1 };
    const { answer } = await whole(wishes);
    const counts = answer.choices.map((choice) => tokensBetweenMarks([choice]));
    expect(Math.min(...counts)).toBeGreaterThan(3);
    expect(reasoningIn(answer.usage)).toBe(counts.reduce((sum, count) => sum + count, 0));

    const data = await streamData(await post({ ...wishes, stream: true, stream_options: { include_usage: true } }));
    const chunks = data.slice(0, -1).map((one) => chatChunkSchema.parse(JSON.parse(one)));
    const deltas = chunks.flatMap(({ choices }) => choices).filter(({ logprobs }) => logprobs);
    const streamed = [0, 1].map((place) => tokensBetweenMarks(deltas.filter(({ index }) => index === place)));
    expect(reasoningIn(chunks.at(-1)?.usage)).toBe((streamed[0] ?? 0) + (streamed[1] ?? 0));

    const cut = await whole({ grammar: THINKS, logprobs: true, max_tokens: 12 });
    expect(reasoningIn(cut.answer.usage)).toBe(tokensBetweenMarks(cut.answer.choices));
    const off = await whole({ chat_template_kwargs: { enable_thinking: false }, max_tokens: 8 });
    expect(reasoningIn(off.answer.usage)).toBe(0);
  });

  it("is accepted in the history, where the template shows it", async () => {
    const turn = (assistant: object) =>
      whole({
        messages: [asked.messages[0], { role: "assistant", content: "It is calm.", ...assistant }, asked.messages[0]],
        max_tokens: 2,
      });
    const [without, withIt] = [await turn({}), await turn({ reasoning_content: "The sea is flat today." })];
    expect(withIt.answer.usage.prompt_tokens).toBeGreaterThan(without.answer.usage.prompt_tokens + 5);
  });

  it("can be switched off by a template argument, and cut by the token limit", async () => {
    const off = await whole({ chat_template_kwargs: { enable_thinking: false }, max_tokens: 8 });
    expect(off.message).not.toHaveProperty("reasoning_content");
    const cut = await whole({ grammar: THINKS, max_tokens: 12 });
    expect(cut.message.content).toBe("");
    expect(cut.message.reasoning_content).toMatch(/^The/u);
    expect(cut.answer.choices[0]?.finish_reason).toBe("length");
  });

  it("may come before an answer that a schema holds", async () => {
    const schema = { type: "object", properties: { calm: { type: "boolean" } }, required: ["calm"] };
    const response_format = { type: "json_schema", json_schema: { name: "sea", schema } };
    const { message } = await whole({
      response_format,
      max_tokens: 400,
      chat_template_kwargs: { enable_thinking: false },
    });
    const json = /\{[^]*\}/u.exec(message.content ?? "")?.[0] ?? "";
    expect(JSON.parse(json)).toEqual({ calm: expect.any(Boolean) });
  });
});
