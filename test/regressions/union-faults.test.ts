// Root cause: of the branches of a union the deepest was told, so that a bound on the whole value was told as the wrong type
// of its first item, and a value that was missing as "Invalid input".
import { describe, expect, it } from "vitest";
import type { z } from "zod";
import { apiErrorOfZod } from "../../shared/errors/zod-error.ts";
import { chatRequestSchema } from "../../shared/openai/chat.ts";
import { completionRequestSchema } from "../../shared/openai/completions.ts";
import { embeddingRequestSchema } from "../../shared/openai/embeddings.ts";
import { requestEnvelopeSchema } from "../../shared/openai/request-envelope.ts";
import { effectiveSets } from "../../shared/steering/steering-set.ts";

const refusal = (schema: z.ZodType, value: object) => {
  const result = schema.safeParse({ model: "m", ...value });
  if (result.success) throw new Error("was accepted");
  const { code, param, message } = apiErrorOfZod(result.error);
  return { code, param, message };
};
const set = { features: [{ index: 1, strength: 1 }] };
const messages = [{ role: "user", content: "x" }];

describe("a fault in a member that may have several forms", () => {
  it.each([
    [completionRequestSchema, {}, "prompt"],
    [embeddingRequestSchema, {}, "input"],
  ])("is told as missing when the member is (%#)", (schema, value, param) => {
    expect(refusal(schema, value)).toEqual({ code: "missing_field", param, message: `'${param}' is required.` });
  });

  it.each([
    [chatRequestSchema, { messages, stop: ["a", "b", "c", "d", "e"] }, "stop", "at most 4"],
    [requestEnvelopeSchema, { steering: Array.from({ length: 17 }, () => set) }, "steering", "at most 16"],
    [embeddingRequestSchema, { input: Array.from({ length: 2_049 }, () => "x") }, "input", "at most 2048 inputs"],
    [embeddingRequestSchema, { input: Array.from({ length: 2_049 }, () => [1]) }, "input", "at most 2048 inputs"],
    [embeddingRequestSchema, { input: ["a", 5] }, "input[1]", "expected string"],
    [embeddingRequestSchema, { input: ["a", ""] }, "input[1]", "must not be empty"],
    [embeddingRequestSchema, { input: 5 }, "input", "expected string or array, received number"],
    [requestEnvelopeSchema, { steering: { ...set, positions: "some" } }, "steering.positions", "Invalid option"],
    [
      requestEnvelopeSchema,
      { steering: { ...set, positions: { start: 3, end: 2 } } },
      "steering.positions.start",
      "less than end",
    ],
    [requestEnvelopeSchema, { steering: [{ features: [{ index: "x" }] }] }, "steering[0].features[0].index", "number"],
  ])("names what is wrong (%#)", (schema, value, param, said) => {
    const fault = refusal(schema, value);
    expect(fault).toMatchObject({ code: "invalid_value", param });
    expect(fault.message).toContain(said);
  });

  it("is none in two empty sets of features, which ask for an unsteered answer", () => {
    const envelope = requestEnvelopeSchema.parse({ model: "m", steering: [{ features: [] }, { features: [] }] });
    expect(effectiveSets(envelope.steering)).toEqual([]);
    expect(refusal(requestEnvelopeSchema, { steering: [set, set] }).message).toContain("named twice");
  });
});
