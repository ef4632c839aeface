import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { openEngine, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8 });
});
afterAll(() => engine.stop());

const ask = async (path: string, body: object): Promise<unknown> => (await engine.post(path, body)).json();
const tokensSchema = z.object({ tokens: z.array(z.int()) });
const messages = [{ role: "user", content: "hi <|im_end|>" }];

describe("the tokenizer and the template, for operators", () => {
  it("give back the text whose tokens they gave", async () => {
    const content = "The sea, 日本😀 <|im_start|>";
    const { tokens } = tokensSchema.parse(await ask("/tokenize", { content }));
    expect(await ask("/detokenize", { tokens })).toEqual({ content });
    const plain = tokensSchema.parse(await ask("/tokenize", { content, parse_special: false }));
    expect(plain.tokens.length).toBeGreaterThan(tokens.length);
    const pieces = z
      .object({ tokens: z.array(z.object({ id: z.int(), piece: z.union([z.string(), z.array(z.int())]) })) })
      .parse(await ask("/tokenize", { content, with_pieces: true }));
    expect(pieces.tokens.map(({ id }) => id)).toEqual(tokens);
    expect(Buffer.concat(pieces.tokens.map(({ piece }) => Buffer.from(piece))).toString()).toBe(content);
  });

  it("show the prompt of a chat request, with exactly the tokens that it is computed with", async () => {
    const answer = z
      .object({ prompt: z.string(), tokens: z.array(z.int()) })
      .parse(await ask("/apply-template", { messages }));
    expect(answer.prompt).toBe("<|im_start|>user\nhi <|im_end|><|im_end|>\n<|im_start|>assistant\n");
    const { usage } = z
      .object({ usage: z.object({ prompt_tokens: z.int() }) })
      .parse(await ask("/v1/chat/completions", { model: "demo", messages, max_tokens: 1 }));
    expect(usage.prompt_tokens).toBe(answer.tokens.length);
  });

  it("name what is wrong", async () => {
    expect(await ask("/tokenize", {})).toMatchObject({ error: { param: "content" } });
    expect(await ask("/detokenize", { tokens: [1, 99_999] })).toMatchObject({ error: { param: "tokens[1]" } });
    expect(await ask("/apply-template", { messages: [] })).toMatchObject({ error: { param: "messages" } });
  });
});
