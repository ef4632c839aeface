// Root cause of these cases: a library that counts repetitions without a sign, so that "at least 5, at most 1" is 2^64 of
// them, and that follows every reading of a grammar at once, of which nested repetitions have more with every token. One
// request of one caller held the engine until it was killed. Case C045.
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { textCompletionSchema } from "../../shared/openai/completions.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon } from "../support/native-harness.ts";

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8, slots: 2, max_pending: 4 });
});
afterAll(() => engine.stop());

const chat = (over: object) =>
  engine.post("/v1/chat/completions", { model: "demo", messages: [{ role: "user", content: "x" }], seed: 1, ...over });
const held = (schema: object) => ({ response_format: { type: "json_schema", json_schema: { name: "a", schema } } });
const toolOf = (parameters: object) => ({ tools: [{ type: "function", function: { name: "f", parameters } }] });
const within = (schema: object) => ({ type: "object", properties: { a: schema } });
async function refusal(over: object) {
  const response = await chat({ max_tokens: 200, ...over });
  const { error } = z
    .object({ error: z.looseObject({ param: z.string().nullable(), message: z.string() }) })
    .parse(await response.json());
  return { status: response.status, ...error };
}

describe("C045: at least more than at most", () => {
  it.each([
    [{ type: "string", minLength: 5, maxLength: 1 }, "'minLength' is above 'maxLength'"],
    [{ type: "array", items: { type: "string" }, minItems: 2, maxItems: 1 }, "'minItems' is above 'maxItems'"],
    [{ type: "string", pattern: "^a{5,1}$" }, "more often than at most: {5,1}"],
    [{ type: "integer", minimum: 5, maximum: 1 }, "no integer"],
    [{ type: "integer", exclusiveMinimum: 1, exclusiveMaximum: 2 }, "no integer"],
    [{ type: "string", minLength: -1 }, "'minLength' must be a whole number"],
    [{ type: "string", maxLength: 1.5 }, "'maxLength' must be a whole number"],
  ])("in the schema %j is refused, alone and inside another", async (schema, why) => {
    for (const over of [held(schema), held(within(schema))]) {
      expect(await refusal(over)).toMatchObject({
        status: 400,
        param: "response_format",
        message: expect.stringContaining(why),
      });
    }
  });

  it.each([
    [{ type: "string", minLength: 5, maxLength: 1 }],
    [{ type: "array", items: { type: "string" }, minItems: 5, maxItems: 3 }],
    [{ type: "string", pattern: "^a{5,1}$" }],
  ])("in a tool's %j is refused", async (schema) => {
    expect(await refusal(toolOf(within(schema)))).toMatchObject({ status: 400, param: "tools[0].function.parameters" });
  });

  it("in a grammar is refused, and where braces are no counts they are text", async () => {
    for (const grammar of ['root ::= "a"{5,1}', 'root ::= ("a" | [b{1,0}]){ 2 , 1 } # {1,2}']) {
      expect(await refusal({ grammar })).toMatchObject({ status: 400, param: "grammar" });
    }
    const text = await chat({ grammar: String.raw`root ::= "\"{5,1}" [{] # {5,1}`, max_tokens: 20 });
    expect(await text.json()).toMatchObject({ choices: [{ message: { content: '"{5,1}{' } }] });
  });
});

describe("a schema that names what it does not have", () => {
  it.each([
    [{ type: "object", properties: { a: { type: "string" } }, required: ["b"] }, "'required' names \"b\""],
    [{ type: "object", required: ["toString"], properties: {} }, "'required' names \"toString\""],
    [{ type: "object", properties: { a: { type: "string" } }, required: "a" }, "'required' must be a list"],
    [{ type: "object", properties: [] }, "'properties' must be an object"],
  ])("%j is refused instead of followed in part", async (schema, why) => {
    expect(await refusal(held(schema))).toMatchObject({ status: 400, message: expect.stringContaining(why) });
  });

  it("may have a property that is called like a rule", async () => {
    const properties = { minLength: { type: "integer" }, required: { type: "boolean" }, properties: { type: "null" } };
    const response = await chat({ max_tokens: 300, ...held({ properties, required: Object.keys(properties) }) });
    expect(response.status).toBe(200);
  });
});

describe("C045: a grammar that cannot be followed", () => {
  it("costs its own request alone, which is told why, beside a stream that goes on", async () => {
    const asked = { model: "demo", prompt: "The sea", max_tokens: 300, ignore_eos: true };
    const beside = engine.post("/v1/completions", { ...asked, stream: true });
    const pattern = "^((((a{1,1000}){1,1000}){1,1000}){1,1000}){1,1000}$";
    const fault = await refusal({ ...held({ type: "string", pattern }), max_tokens: 400 });
    expect(fault).toMatchObject({ status: 400, message: expect.stringContaining("too many ways") });
    expect((await streamData(await beside)).at(-1)).toBe("[DONE]");
    const after = textCompletionSchema.parse(await (await engine.post("/v1/completions", asked)).json());
    expect(after.usage?.completion_tokens).toBe(300);
  });

  it("because no token is left is a fault of the request, whole and streamed", async () => {
    const over = { grammar: 'root ::= " sea"', allowed_token_ids: [300] };
    expect(await refusal(over)).toMatchObject({ status: 400, message: expect.stringContaining("no token is allowed") });
    const data = await streamData(await chat({ ...over, stream: true }));
    expect(JSON.parse(data.at(-1) ?? "")).toMatchObject({ error: { code: "invalid_value" } });
  });
});
