import { afterAll, afterEach, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { ENGINE_WATCH_LISTS_PATH } from "../../backend/ports/watch-lists.ts";
import { activationResultSchema, type ActivationResult } from "../../shared/steering/activations.ts";
import { SseParser } from "../../shared/sse/parser.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon, repositoryFile } from "../support/native-harness.ts";

const LISTS = ENGINE_WATCH_LISTS_PATH;
const SEA = 501;
const FEATURES = [SEA, 305, 3];
const messages = [{ role: "user", content: "Tell me a story about a sailor on the sea." }];

const figuresSchema = z.object({
  index: z.int(),
  count: z.int(),
  mean: z.number().nullable(),
  max: z.number().nullable(),
  density: z.number().nullable(),
  over_threshold: z.int(),
});
const statisticsSchema = z.looseObject({
  state: z.string(),
  requests: z.int(),
  rows: z.int(),
  features: z.array(figuresSchema.extend({ label: z.string().nullable() })),
  buckets: z.array(z.object({ start_ms: z.int(), requests: z.int(), rows: z.int(), features: z.array(figuresSchema) })),
  events: z.object({ total: z.int(), suppressed: z.int() }),
});
const eventSchema = z.object({
  sequence: z.int(),
  at_ms: z.int(),
  request_id: z.string().nullable(),
  attempt: z.int().nullable(),
  position: z.int(),
  part: z.enum(["prompt", "completion"]),
  feature: z.int(),
  value: z.number(),
  context: z.object({ before: z.string(), token: z.string(), after: z.string() }).optional(),
});
const eventsSchema = z.object({ data: z.array(eventSchema), has_more: z.boolean() });
const answerSchema = z.looseObject({
  choices: z.array(z.looseObject({ message: z.looseObject({ content: z.string() }), logprobs: z.unknown() })),
  usage: z.looseObject({
    prompt_tokens: z.int(),
    completion_tokens: z.int(),
    prompt_tokens_details: z.object({ cached_tokens: z.int() }),
  }),
  steerage: z.object({ activations: activationResultSchema.optional() }).optional(),
});

let engine: EngineHarness;
const demo = (id: string) => ({ id, path: repositoryFile(`backend/demo/${id}`), layer: null });
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), {
    model: "demo",
    model_path: DEMO_Q8,
    max_pending: 8,
    saes: [demo("demo-l1"), demo("demo-l2")],
    monitoring: { context_text: true, context_tokens: 2, history: 50, max_events_per_request: 40 },
  });
});
afterAll(() => engine.stop());
afterEach(() => engine.get(`${LISTS}/sea`, { method: "DELETE" }));

const put = (body: object, id = "sea") =>
  engine.get(`${LISTS}/${id}`, {
    method: "PUT",
    body: JSON.stringify(body),
    headers: { "content-type": "application/json" },
  });
const statistics = async (query = "") =>
  statisticsSchema.parse(await (await engine.get(`${LISTS}/sea${query}`)).json());
const events = async (query = "") => eventsSchema.parse(await (await engine.get(`${LISTS}/sea/events${query}`)).json());
const ask = async (over: object = {}, requestId = "req_1", salt = "") => {
  const body = { model: "demo", messages, max_tokens: 24, temperature: 0, ignore_eos: true, ...over };
  const headers = { "x-steerage-request-id": requestId, "x-steerage-cache-salt": salt };
  return await engine.post("/v1/chat/completions", body, { headers });
};
const answer = async (over: object = {}, requestId = "req_1", salt = "") =>
  answerSchema.parse(await (await ask(over, requestId, salt)).json());
const sensing = { sae_id: "demo-l1", features: FEATURES, positions: "all" };

/** What a watch list must say of what a request was told about its own activations. */
function figuresOf({ positions }: ActivationResult) {
  return FEATURES.map((index) => {
    const values = positions.flatMap((row) => row.features.filter((one) => one.index === index && one.value > 0));
    const sum = values.reduce((total, { value }) => total + value, 0);
    return {
      index,
      count: values.length,
      mean: values.length === 0 ? null : sum / values.length,
      max: values.length === 0 ? null : Math.max(...values.map(({ value }) => value)),
      density: values.length / positions.length,
    };
  });
}
const told = ({ steerage }: z.infer<typeof answerSchema>): ActivationResult => {
  if (steerage?.activations === undefined) throw new Error("the answer has no activations");
  return steerage.activations;
};

const chunkSchema = z.object({ choices: z.array(z.object({ delta: z.object({ content: z.string().optional() }) })) });
const textOf = (data: readonly string[]): string =>
  data
    .slice(0, -1)
    .flatMap((one) => chunkSchema.parse(JSON.parse(one)).choices.map(({ delta }) => delta.content ?? ""))
    .join("");

describe("a watch list", () => {
  it("says of a request what the request itself is told of its activations", async () => {
    expect((await put({ sae_id: "demo-l1", features: FEATURES })).status).toBe(200);
    const activations = told(await answer({ return_sae_activations: sensing }));
    const seen = await statistics();
    expect([seen.state, seen.requests, seen.rows]).toEqual(["watching", 1, activations.positions.length]);
    expect(seen.features).toMatchObject(figuresOf(activations));
    expect(seen.features[0]).toMatchObject({ label: expect.stringContaining("sea"), count: expect.any(Number) });
    expect(seen.features[0]?.count).toBeGreaterThan(0);
    expect(seen.buckets.reduce((sum, { rows }) => sum + rows, 0)).toBe(seen.rows);
    expect(seen.buckets.at(-1)?.features.map(({ index }) => index)).toEqual(FEATURES);
  });

  it("reads before or after steering, as it says", async () => {
    const steering = { sae_id: "demo-l1", features: [{ index: SEA, strength: 30 }] };
    const maxima: number[] = [];
    for (const read_point of ["pre_steering", "post_steering"]) {
      await put({ sae_id: "demo-l1", features: [SEA], read_point });
      const activations = told(
        await answer({ steering, return_sae_activations: { ...sensing, features: [SEA], read_point } }),
      );
      const [figures] = (await statistics()).features;
      expect(figures?.max).toBe(
        Math.max(...activations.positions.flatMap((row) => row.features.map(({ value }) => value))),
      );
      maxima.push(figures?.max ?? 0);
    }
    expect(maxima[1]).toBeGreaterThan((maxima[0] ?? 0) + 5);
  });

  it("changes no answer and puts nothing into it, whole or streamed", async () => {
    const exact = { logprobs: true, top_logprobs: 5, temperature: 1, seed: 5 };
    const plain = await answer(exact, "req_1", "plain");
    const plainStream = await streamData(await ask({ stream: true }, "req_1", "plain"));
    await put({ sae_id: "demo-l1", features: FEATURES, threshold: 0 });
    const watched = await answer(exact, "req_2", "watched");
    const watchedStream = await streamData(await ask({ stream: true }, "req_2", "watched"));
    expect(watched.choices).toEqual(plain.choices);
    expect(watched.usage).toEqual(plain.usage);
    expect(watched).not.toHaveProperty("steerage");
    expect(textOf(watchedStream)).toBe(textOf(plainStream));
    expect(watchedStream.join()).not.toContain("steerage");
  });

  it("counts a prompt once for all choices on it, beside what the caller asked for", async () => {
    await put({ sae_id: "demo-l1", features: FEATURES });
    const { usage } = await answer({ n: 3, temperature: 1 }, "req_1", "choices");
    const seen = await statistics();
    // A copied prompt leaves its last row to compute; the last token of a choice goes through the model for none.
    expect([seen.requests, seen.rows]).toEqual([1, usage.prompt_tokens + 2 + usage.completion_tokens - 3]);
  });

  it("leaves prefixes to the cache, and sees what is computed only", async () => {
    await put({ sae_id: "demo-l1", features: FEATURES });
    const first = await answer({}, "req_1", "prefix");
    const before = (await statistics()).rows;
    const second = await answer({}, "req_2", "prefix");
    expect(second.usage.prompt_tokens_details.cached_tokens).toBe(first.usage.prompt_tokens - 1);
    expect((await statistics()).rows - before).toBe(1 + 24 - 1);
  });

  it("begins anew where its SAE is swapped for another one", async () => {
    await put({ sae_id: "demo-l2", features: [500] });
    await answer();
    await engine.post("/engine/v1/saes", demo("demo-l2"));
    expect(await statistics()).toMatchObject({ requests: 1, layer: 2 });
    const stream = await engine.get(`${LISTS}/sea/events?stream=true`);
    await engine.post("/engine/v1/saes", { ...demo("demo-l1"), id: "demo-l2" });
    await answer();
    expect(await statistics()).toMatchObject({ requests: 1, layer: 1 });
    expect(await stream.text()).not.toContain("data:");
    await engine.post("/engine/v1/saes", demo("demo-l2"));
  });

  it("reads the prompt's last row and the answer's rows after the last block", async () => {
    await engine.post("/engine/v1/saes", { ...demo("demo-l2"), id: "top", layer: 3, serve_anyway: true });
    await put({ sae_id: "top", features: [500] });
    await answer({}, "req_1", "last block");
    expect((await statistics()).rows).toBe(1 + 24 - 1);
    await engine.get("/engine/v1/saes/top", { method: "DELETE" });
  });

  it("waits where its SAE is detached, and goes on when it is back", async () => {
    await put({ sae_id: "demo-l2", features: [500] });
    await engine.get("/engine/v1/saes/demo-l2", { method: "DELETE" });
    await answer();
    expect(await statistics()).toMatchObject({
      state: "idle",
      reason: "The SAE 'demo-l2' is not attached.",
      requests: 0,
      features: [{ index: 500, count: 0, mean: null, max: null, density: null }],
    });
    await engine.post("/engine/v1/saes", demo("demo-l2"));
    await answer();
    expect(await statistics()).toMatchObject({ state: "watching", requests: 1 });
  });

  it("is kept by requests that wait, though its SAE is detached meanwhile", async () => {
    await put({ sae_id: "demo-l2", features: [500] });
    const long = { stream: true, max_tokens: 200 };
    const running = await Promise.all([ask(long, "req_1", "x"), ask(long, "req_2", "y")]);
    const waiting = ask({}, "req_3", "z");
    while (!engine.events.some((event) => event.type === "load" && event.waiting === 1)) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    await engine.get("/engine/v1/saes/demo-l2", { method: "DELETE" });
    await Promise.all(running.map((stream) => stream.text()));
    expect((await waiting).status).toBe(200);
    expect((await statistics()).requests).toBe(3);
    await engine.post("/engine/v1/saes", demo("demo-l2"));
  });

  it("keeps its statistics when it is set again as it was, and begins anew when it is changed", async () => {
    await put({ sae_id: "demo-l1", features: FEATURES });
    await answer();
    await put({ sae_id: "demo-l1", features: FEATURES });
    expect((await statistics()).requests).toBe(1);
    await put({ sae_id: "demo-l1", features: FEATURES, threshold: 1 });
    expect((await statistics()).requests).toBe(0);
  });
});

describe("the events of a watch list", () => {
  it("are the positions above the threshold, with the text around them", async () => {
    await put({ sae_id: "demo-l1", features: [SEA], threshold: 1 });
    const whole = await answer({ return_sae_activations: { ...sensing, features: [SEA] } }, "req_7");
    const over = told(whole).positions.flatMap(({ position, features }) =>
      features.filter(({ value }) => value > 1).map(({ value }) => [position, value]),
    );
    expect(over.length).toBeGreaterThan(1);
    const { data, has_more: more } = await events();
    expect([data.map(({ position, value }) => [position, value]), more]).toEqual([over, false]);
    expect(data[0]).toMatchObject({ sequence: 1, request_id: "req_7", attempt: 1, feature: SEA });
    const prompt = data.find(({ context }) => context?.token === " sea");
    expect(prompt).toMatchObject({ part: "prompt", context: { before: " on the" } });
    const answered = data.flatMap(({ part, context }) =>
      part === "completion" ? [`${context?.before}${context?.token}${context?.after}`] : [],
    );
    const text = `<|im_start|>assistant\n${whole.choices[0]?.message.content}`;
    expect([answered.length > 0, answered.filter((piece) => !text.includes(piece))]).toEqual([true, []]);
    expect((await statistics()).features[0]?.over_threshold).toBe(over.length);
  });

  it("are bounded for each request and in all, and counted beyond that", async () => {
    await put({ sae_id: "demo-l1", features: Array.from({ length: 200 }, (_, index) => index), threshold: 0 });
    await answer({}, "req_a", "a");
    const one = await statistics();
    expect(one.events.total).toBe(40);
    expect(one.events.suppressed).toBeGreaterThan(0);
    expect(one.events.total + one.events.suppressed).toBe(
      one.features.reduce((sum, { over_threshold: over }) => sum + over, 0),
    );
    await answer({}, "req_b", "b");
    const { data } = await events("?limit=1000");
    expect([data.length, data[0]?.sequence, data.at(-1)?.sequence]).toEqual([50, 31, 80]);
    const page = await events("?after=40&limit=5");
    expect([page.data.map(({ sequence }) => sequence), page.has_more]).toEqual([[41, 42, 43, 44, 45], true]);
  });

  it("stream as they come, after those that are kept, and end with the list", async () => {
    await put({ sae_id: "demo-l1", features: [SEA], threshold: 1 });
    await answer();
    const kept = (await events()).data;
    const response = await engine.get(`${LISTS}/sea/events`, { headers: { accept: "text/event-stream" } });
    expect(response.headers.get("content-type")).toContain("text/event-stream");
    await answer({}, "req_2", "again");
    await engine.get(`${LISTS}/sea`, { method: "DELETE" });
    const parser = new SseParser({ maxEventLength: 100_000 });
    const streamed = parser.push(await response.text()).map(({ data }) => eventSchema.parse(JSON.parse(data)));
    expect(streamed.slice(0, kept.length)).toEqual(kept);
    expect(streamed.length).toBeGreaterThan(kept.length);
    expect(streamed.at(-1)?.request_id).toBe("req_2");
  });
});

describe("what is wrong with a watch list", () => {
  it.each([
    [{ sae_id: "demo-l1" }, "missing_field", "features"],
    [{ sae_id: "demo-l1", features: [] }, "invalid_value", "features"],
    [{ sae_id: "demo-l1", features: [3, 512] }, "invalid_feature_index", "features[1]"],
    [{ sae_id: "demo-l1", features: [3, 3] }, "invalid_value", "features[1]"],
    [{ sae_id: "nobody", features: [3] }, "sae_not_available", "sae_id"],
    [{ features: [3] }, "invalid_steering", "sae_id"],
    [{ sae_id: "demo-l1", features: [3], threshold: -1 }, "invalid_value", "threshold"],
    [{ sae_id: "demo-l1", features: [3], context_tokens: 65 }, "invalid_value", "context_tokens"],
  ])("%j is refused by name", async (body, code, param) => {
    const response = await put(body);
    expect([response.status, await response.json()]).toMatchObject([400, { error: { code, param } }]);
    expect((await engine.get(`${LISTS}/sea`)).status).toBe(404);
  });

  it("is told for ids, queries, methods and numbers too", async () => {
    expect(await (await put({ sae_id: "demo-l1", features: [3] }, "a%2Fb")).json()).toMatchObject({
      error: { param: "id" },
    });
    await put({ sae_id: "demo-l1", features: [3] });
    for (const [route, param] of [
      ["?minutes=61", "minutes"],
      ["/events?limit=0", "limit"],
      ["/events?after=x", "after"],
    ]) {
      expect(await (await engine.get(`${LISTS}/sea${route}`)).json()).toMatchObject({ error: { param } });
    }
    const wrong = await engine.get(`${LISTS}/sea`, { method: "POST" });
    expect([wrong.status, wrong.headers.get("allow")]).toEqual([405, "GET, PUT, DELETE"]);
    expect((await engine.get(`${LISTS}/sea/other`)).status).toBe(404);
    for (let number = 1; number < 16; number += 1) await put({ sae_id: "demo-l1", features: [3] }, `l${number}`);
    const many = await put({ sae_id: "demo-l1", features: [3] }, "l16");
    expect(await many.json()).toMatchObject({ error: { code: "invalid_value", param: "id" } });
    const listed = z
      .object({ data: z.array(z.object({ id: z.string() })) })
      .parse(await (await engine.get(LISTS)).json());
    expect(listed.data).toHaveLength(16);
    for (let number = 1; number < 16; number += 1) await engine.get(`${LISTS}/l${number}`, { method: "DELETE" });
  });
});
