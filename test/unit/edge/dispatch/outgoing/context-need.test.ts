import { describe, expect, it } from "vitest";
import { requestEnvelopeSchema, type InferenceRoute } from "../../../../../shared/openai/request-envelope.ts";
import { tokenBounds } from "../../../../../edge/dispatch/outgoing/bounds.ts";
import { contextNeed, placeOfLongest } from "../../../../../edge/dispatch/outgoing/context-need.ts";
import { servedModel } from "../../../../support/dispatch-fakes.ts";

function needOf(
  body: Record<string, unknown>,
  contextLength: number | null,
  route: InferenceRoute = "/v1/completions",
) {
  const text = JSON.stringify({ model: "m", ...body });
  const envelope = requestEnvelopeSchema.parse(JSON.parse(text));
  const model = { ...servedModel, contextLength };
  return contextNeed(envelope, text, tokenBounds(route, envelope, text, model), model);
}
const words = (count: number): string => "word ".repeat(count);

describe("the context that a request needs", () => {
  it("is not asked for where every replica has it, or nobody knows theirs", () => {
    expect(needOf({ prompt: words(10), max_tokens: 20 }, 100)).toBeNull();
    expect(needOf({ prompt: words(1_000) }, null)).toBeNull();
  });

  it("is the estimate of the prompt and the answer's limit", () => {
    const need = needOf({ prompt: words(10), max_completion_tokens: 90 }, 100);
    expect(need?.leastPromptTokens).toBe(0);
    expect(need?.expectedTokens).toBeGreaterThan(100);
  });

  it("is at least a token a word, of the longest prompt and of text alone", () => {
    expect(needOf({ prompt: words(150) }, 100)?.leastPromptTokens).toBe(150);
    expect(needOf({ prompt: [words(150), words(200), words(3)] }, 100)?.leastPromptTokens).toBe(200);
    expect(needOf({ prompt: Array.from({ length: 300 }, () => 7) }, 100)?.leastPromptTokens).toBe(300);
    expect(needOf({ prompt: "x".repeat(5_000) }, 100)?.leastPromptTokens).toBe(1);
    const image = { type: "image_url", image_url: { url: words(5_000) } };
    const messages = [
      { role: "system", content: words(150) },
      { role: "user", content: [{ type: "text", text: words(50) }, image] },
      null,
    ];
    expect(needOf({ messages }, 100, "/v1/chat/completions")?.leastPromptTokens).toBe(200);
    expect(needOf({ input: ["a", words(150)] }, 100, "/v1/embeddings")?.leastPromptTokens).toBe(150);
  });

  it.each([
    [{ input: ["a", words(9), "b"] }, 1],
    [{ prompt: [[1, 2, 3], [1]] }, 0],
    [{ prompt: words(9) }, null],
    [{ prompt: [1, 2, 3] }, null],
    [{ messages: [{ role: "user", content: "a" }] }, null],
  ])("of several prompts is that of the longest: %j", (body, place) => {
    expect(placeOfLongest(requestEnvelopeSchema.parse({ model: "m", ...body }))).toBe(place);
  });
});
