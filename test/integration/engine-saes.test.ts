import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { type EngineHarness, openEngine } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon, repositoryFile } from "../support/native-harness.ts";

/** Features of demo-l1 by the theme they stand for (backend/demo/README.md). */
const SEA = 501;
const SPACE = 117;

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), {
    model: "demo",
    model_path: DEMO_Q8,
    saes: ["demo-l1", "demo-l2"].map((id) => ({ id, path: repositoryFile(`backend/demo/${id}`), layer: null })),
  });
});
afterAll(() => engine.stop());

const listSchema = z.looseObject({
  total: z.number().optional(),
  data: z.array(z.looseObject({ index: z.number(), label: z.string().nullable(), score: z.number().optional() })),
});

describe("finding features of the demo model", () => {
  it("lists its SAEs with what was measured", async () => {
    const listed = await (await engine.get("/v1/saes")).json();
    expect(listed).toMatchObject({
      object: "list",
      data: [
        { id: "demo-l1", model: "demo", layer: 1, features: 512, labelled: 512, decoder_rows: "stored" },
        { id: "demo-l2", layer: 2, fidelity: { explained_variance: expect.any(Number) } },
      ],
    });
  });

  it("finds features by their labels", async () => {
    const response = await engine.get("/v1/saes/demo-l1/features?q=sea%20theme&sort=-density&limit=3");
    const { data, total } = listSchema.parse(await response.json());
    expect(data).toHaveLength(3);
    expect(total).toBeGreaterThan(3);
    for (const { label } of data) expect(label).toContain("sea theme");
  });

  it("ranks the features that tell two sets of texts apart", async () => {
    const sea = [
      "The sailor rowed a wooden boat to the harbour. The waves and the salt water were deep and blue.",
      "A fisherman swam under the waves and found a pearl by the lighthouse. The tide and the ocean were stormy.",
    ];
    const space = [
      "The astronaut landed the rocket on the moon. The stars and the planets were shiny and silver.",
      "A robot drifted among the stars with a telescope near Mars. The galaxy and the comet were dark.",
    ];
    const rank = async (positive: string[], negative: string[]) => {
      const response = await engine.post("/v1/saes/demo-l1/features/rank", { positive, negative, limit: 40 });
      expect(response.status).toBe(200);
      return listSchema.parse(await response.json()).data;
    };
    // Two at once wait for each other, and answers go on beside them.
    const [one, other, answer] = await Promise.all([
      rank(sea, space),
      rank(space, sea),
      engine.post("/v1/completions", { model: "demo", prompt: "Once", max_tokens: 4 }),
    ]);
    expect(answer.status).toBe(200);
    const score = (list: typeof one, index: number) => list.find((found) => found.index === index)?.score;
    expect(score(one, SEA)).toBeGreaterThan(0.1);
    expect(score(one, SPACE)).toBeLessThan(-0.1);
    expect(score(other, SEA)).toBeCloseTo(-(score(one, SEA) ?? 0), 6);
  });

  it("tells its host what each ranking computed, once, and of looks nothing", async () => {
    const ask = (path: string, id: string, body?: object) =>
      engine.get(path, {
        headers: { "x-steerage-request-id": id, "x-steerage-attempt": "1" },
        ...(body === undefined ? {} : { method: "POST", body: JSON.stringify(body) }),
      });
    const rank = "/v1/saes/demo-l1/features/rank";
    await (await ask("/v1/saes/demo-l1", "req_look")).json();
    expect((await ask(rank, "req_wrong", { positive: [], negative: ["b"] })).status).toBe(400);
    const answer = z
      .object({ usage: z.object({ prompt_tokens: z.int().min(2) }) })
      .parse(await (await ask(rank, "req_rank", { positive: ["The sea"], negative: ["The moon"] })).json());
    expect(await engine.ended("req_wrong")).toMatchObject({ outcome: "failed", computed_prompt: 0 });
    expect(await engine.ended("req_rank")).toMatchObject({
      outcome: "completed",
      computed_prompt: answer.usage.prompt_tokens,
      cached_prompt: 0,
      computed_completion: 0,
    });
    const told = engine.events.flatMap((event) => (event.type === "ended" ? [event.request_id] : []));
    expect(told.toSorted()).toEqual(["req_rank", "req_wrong"]);
  });

  it("refuses what cannot be ranked, by name, and other methods", async () => {
    const path = "/v1/saes/demo-l1/features/rank";
    const long = await engine.post(path, { positive: ["sea ".repeat(1_100)], negative: ["b"] });
    expect(long.status).toBe(400);
    expect(await long.json()).toMatchObject({ error: { code: "context_length_exceeded", param: "positive[0]" } });
    expect((await engine.get(path)).status).toBe(405);
    const posted = await engine.post("/v1/saes", {});
    expect([posted.status, posted.headers.get("allow")]).toEqual([405, "GET"]);
    expect((await engine.get("/v1/saes/none")).status).toBe(404);
    expect((await engine.post(path, "{")).status).toBe(400);
  });
});
