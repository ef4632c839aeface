// Root cause: template arguments were handed on whatever they named, so that a caller could replace the conversation; and
// errors of libraries reached callers as they were, with source of the template and names of exceptions.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { plainWords } from "../../backend/engine/openai/library-words.ts";
import { openEngine, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";

const errorSchema = z.object({ error: z.object({ message: z.string(), param: z.string(), code: z.string() }) });

describe("what a template or a schema library refuses", () => {
  let engine: EngineHarness;
  beforeAll(async () => {
    engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8 });
  });
  afterAll(() => engine.stop());

  const chat = (more: object) =>
    engine.post("/v1/chat/completions", {
      model: "demo",
      messages: [{ role: "user", content: "x" }],
      max_tokens: 1,
      ...more,
    });
  const refusalOf = async (more: object) => {
    const response = await chat(more);
    expect(response.status).toBe(400);
    return errorSchema.parse(await response.json()).error;
  };
  const withSchema = (schema: object) => ({
    response_format: { type: "json_schema", json_schema: { name: "a", schema } },
  });

  it.each(["messages", "add_generation_prompt", "bos_token", "eos_token", "tools"])(
    "chat_template_kwargs must not set '%s'",
    async (name) => {
      const error = await refusalOf({ chat_template_kwargs: { enable_thinking: false, [name]: "x" } });
      expect(error).toMatchObject({ code: "invalid_value", param: "chat_template_kwargs" });
      expect(error.message).toContain(`'${name}'`);
    },
  );

  it("other template arguments pass", async () => {
    expect((await chat({ chat_template_kwargs: { enable_thinking: false, mood: "calm" } })).status).toBe(200);
  });

  it.each([
    [{ type: "foo" }, "Unrecognized schema"],
    [{ properties: { a: { type: "integer", minimum: "x" } } }, "type must be number, but is string"],
    [{ enum: [] }, "'enum'"],
    [{ properties: { a: { anyOf: [] } } }, "'anyOf'"],
  ])("the schema %j is refused in one clean line", async (schema, said) => {
    const error = await refusalOf(withSchema(schema));
    expect(error).toMatchObject({ code: "invalid_response_format", param: "response_format" });
    expect(error.message).toContain(said);
    expect(error.message).not.toMatch(/\n|exception|conversion failed/u);
  });

  it.each(["^\\d{2}$", "^\\w+$", "^(?=a)a$"])(
    "the pattern %s, which would become any string, is refused",
    async (pattern) => {
      const error = await refusalOf(withSchema({ properties: { a: { type: "string", pattern } } }));
      expect(error).toMatchObject({ code: "invalid_response_format", param: "response_format" });
      expect(error.message).toContain(JSON.stringify(pattern));
    },
  );

  it.each(["^[0-9]{2}$", "^(a|b)\\.c$", "^string$"])("the pattern %s passes", async (pattern) => {
    expect((await chat(withSchema({ type: "string", pattern }))).status).toBe(200);
  });

  it("a tool's schema is refused in one clean line too", async () => {
    const tool = { type: "function", function: { name: "look", parameters: { properties: { a: { type: "foo" } } } } };
    const error = await refusalOf({ tools: [tool] });
    expect(error).toMatchObject({ code: "invalid_value", param: "tools[0].function.parameters" });
    expect(error.message).toContain("Unrecognized schema");
    expect(error.message).not.toMatch(/\n|exception|conversion failed/u);
  });

  it("a property may be called like a member of schemas", async () => {
    const schema = { type: "object", properties: { enum: { type: "boolean" } }, required: ["enum"] };
    expect((await chat(withSchema(schema))).status).toBe(200);
  });

  it("is cut to its point", () => {
    const jinja =
      "\n------------\nWhile executing For at line 1, column 4 in source:\n...{% for m in messages %}...\n      ^\nError: Jinja Exception: Roles must\nalternate";
    expect(plainWords(jinja)).toBe("Roles must alternate");
    expect(plainWords("[json.exception.type_error.302] type must be string")).toBe("type must be string");
    expect(plainWords(`JSON schema conversion failed:\n${"x".repeat(900)}`)).toHaveLength(301);
    expect(plainWords("")).toBe("no reason was given");
  });
});
