import { describe, expect, it } from "vitest";
import type { z } from "zod";
import { ApiError, toApiError } from "../../../shared/errors/api-error.ts";
import { ERRORS, type ErrorCode } from "../../../shared/errors/registry.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import { chatRequestSchema } from "../../../shared/openai/chat.ts";
import { filesBelow, textOf } from "../../support/source-tree.ts";

const codes = Object.keys(ERRORS).filter((code): code is ErrorCode => code in ERRORS);
const refusal = (schema: z.ZodType, value: unknown) => {
  const result = schema.safeParse(value);
  if (result.success) throw new Error("was accepted");
  return apiErrorOfZod(result.error);
};
const chat = (change: Record<string, unknown>) => ({
  model: "m",
  messages: [{ role: "user", content: "x" }],
  ...change,
});

describe("errors", () => {
  it("always have the four members of OpenAI's body", () => {
    for (const code of codes) {
      const body = new ApiError(code).toBody();
      expect(Object.keys(body.error).toSorted()).toEqual(["code", "message", "param", "type"]);
      expect(body.error.code).toBe(code);
    }
  });

  it("carry a wait of at least a second exactly when they can be retried", () => {
    for (const code of codes) {
      expect([code, new ApiError(code).retryAfterSeconds === null]).toEqual([code, !ERRORS[code].retryable]);
    }
  });

  it("tell nothing of an unknown failure", () => {
    const error = toApiError(new Error("password=hunter2 in /etc/x"));
    expect(error.code).toBe("internal_error");
    expect(JSON.stringify(error.toBody())).not.toContain("hunter2");
  });

  it.each([
    [{ messages: [{ role: "wizard", content: "x" }] }, "invalid_value", "messages[0].role"],
    [{ messages: [] }, "invalid_value", "messages"],
    [{ messages: undefined }, "missing_field", "messages"],
    [{ max_tokens: 0 }, "invalid_value", "max_tokens"],
    [{ max_tokens: "5" }, "invalid_value", "max_tokens"],
    [{ stop: "" }, "invalid_value", "stop"],
    [{ stop: ["a", "b", "c", "d", "e"] }, "invalid_value", "stop"],
    [{ temperature: 3 }, "invalid_value", "temperature"],
    [{ model: 5 }, "invalid_value", "model"],
  ])("name the member at fault in %j", (change, code, param) => {
    const error = refusal(chatRequestSchema, chat(change));
    expect([error.code, error.status]).toEqual([code, 400]);
    expect(error.param?.startsWith(param)).toBe(true);
  });

  it("take null for a member that was not given", () => {
    expect(chatRequestSchema.safeParse(chat({ stop: null, max_tokens: null, temperature: null })).success).toBe(true);
  });
});

describe("the error registry", () => {
  it("has no code that nothing uses", () => {
    const sources = ["edge", "backend", "shared"]
      .flatMap((folder) => filesBelow(folder, [".ts"]))
      .filter((file) => file !== "shared/errors/registry.ts")
      .map(textOf)
      .join("\n");
    expect(codes.filter((code) => !sources.includes(`"${code}"`))).toEqual([]);
  });
});
