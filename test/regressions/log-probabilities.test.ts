// Root cause of these cases: log-probabilities told as an afterthought of the text: characters for bytes, bounds that
// nobody checks, chances of the wrong distribution. Cases C041, C042.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { chatChunkSchema, chatCompletionSchema } from "../../shared/openai/chat.ts";
import { textCompletionSchema } from "../../shared/openai/completions.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";
import { bytesOf, EOS, scriptedAddon, ScriptedModel } from "../support/scripted-native.ts";

/** A mark that decoders like to swallow, two and four bytes, and one. */
const TEXT = "\uFEFFé😀b";
let engine: EngineHarness;
let scripted: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8, max_pending: 4 });
  const model = new ScriptedModel();
  model.configure = (made) => {
    made.auto = true;
    // Every byte is a token, so every character but the first is cut by one.
    made.reply = () => [...bytesOf(TEXT), EOS];
  };
  scripted = await openEngine(scriptedAddon(model), {});
});
afterAll(() => Promise.all([engine.stop(), scripted.stop()]));

const chance = { token: z.string(), bytes: z.array(z.int()), logprob: z.number().max(0) };
const listSchema = z.object({ content: z.array(z.object({ ...chance, top_logprobs: z.array(z.object(chance)) })) });
const asked = { model: "demo", messages: [{ role: "user", content: "x" }], max_tokens: 4 };
const chat = (over: object, on = engine) => on.post("/v1/chat/completions", { ...asked, ...over });
const choiceOf = async (over: object, on = engine) =>
  chatCompletionSchema.parse(await (await chat(over, on)).json()).choices[0];
const onScript = { model: "m", max_tokens: 50, logprobs: true, top_logprobs: 2 };

describe("C041: what may be asked for", () => {
  it.each([0, 5, 20])("%i alternatives are that many", async (count) => {
    const choice = await choiceOf({ logprobs: true, top_logprobs: count });
    const { content } = listSchema.parse(choice?.logprobs);
    for (const { top_logprobs: top } of content) expect(top).toHaveLength(count);
    expect(content.map(({ token }) => token).join("")).toBe(choice?.message.content);
  });

  it("true alone has no alternatives, and nothing asked for is null", async () => {
    const { content } = listSchema.parse((await choiceOf({ logprobs: true }))?.logprobs);
    expect(content.map(({ top_logprobs: top }) => top)).toEqual([[], [], [], []]);
    for (const over of [{}, { logprobs: false }, { logprobs: null }]) {
      expect((await choiceOf(over))?.logprobs).toBeNull();
    }
  });

  it.each([
    [{ logprobs: true, top_logprobs: 21 }, "top_logprobs"],
    [{ logprobs: true, top_logprobs: -1 }, "top_logprobs"],
    [{ logprobs: true, top_logprobs: 1.5 }, "top_logprobs"],
    [{ top_logprobs: 2 }, "top_logprobs"],
    [{ logprobs: false, top_logprobs: 2 }, "top_logprobs"],
    [{ logprobs: 5 }, "logprobs"],
    [{ logprobs: "true" }, "logprobs"],
  ])("%j is a fault of %s, whole and streamed", async (over, param) => {
    for (const stream of [false, true]) {
      const response = await chat({ ...over, stream });
      expect(response.status).toBe(400);
      expect(await response.json()).toMatchObject({ error: { param } });
    }
  });
});

describe("C042: tokens that are part of a character", () => {
  it("have their true bytes, which join to the content, whole and streamed", async () => {
    const choice = await choiceOf(onScript, scripted);
    const { content } = listSchema.parse(choice?.logprobs);
    expect(choice?.message.content).toBe(TEXT);
    expect(Buffer.from(content.flatMap(({ bytes }) => bytes)).toString()).toBe(TEXT);

    const data = (await streamData(await chat({ ...onScript, stream: true }, scripted))).slice(0, -1);
    const parts = data.flatMap((one) => chatChunkSchema.parse(JSON.parse(one)).choices);
    const entries = parts.flatMap(({ logprobs }) => (logprobs ? listSchema.parse(logprobs).content : []));
    expect(entries).toEqual(content);
    expect(parts.map(({ delta }) => delta.content ?? "").join("")).toBe(TEXT);
  });

  it("stand in a completion at the offset of their character, which is a place in the text", async () => {
    const legacySchema = z.object({ tokens: z.array(z.string()), text_offset: z.array(z.int()) });
    const body = { model: "m", prompt: "x", max_tokens: 50, logprobs: 1 };
    for (const stream of [false, true]) {
      const response = await scripted.post("/v1/completions", { ...body, stream });
      const answers = stream
        ? (await streamData(response)).slice(0, -1).map((one): unknown => JSON.parse(one))
        : [await response.json()];
      const choices = answers.map((one) => textCompletionSchema.parse(one).choices[0]);
      const told = choices.flatMap((choice) => (choice?.logprobs ? [legacySchema.parse(choice.logprobs)] : []));
      expect(choices.map((choice) => choice?.text ?? "").join("")).toBe(TEXT);
      expect(told.flatMap(({ text_offset: offset }) => offset)).toEqual([0, 0, 0, 1, 1, 2, 2, 2, 2, 4]);
    }
  });
});
