import { describe, expect, it } from "vitest";
import { createApp } from "../../../../edge/app.ts";
import { fakeEdge, GOOD_KEY, MODEL, PRINCIPAL } from "../../../support/edge-deps.ts";
import { errorBodyOf } from "../../../support/error-body.ts";

const RANK = "/v1/saes/sae-1/features/rank";

function setUp() {
  const edge = fakeEdge();
  const app = createApp(edge.deps);
  const authorization = `Bearer ${GOOD_KEY}`;
  const get = (path: string) => app.request(path, { headers: { authorization } });
  const post = (path: string, body: unknown) =>
    app.request(path, {
      method: "POST",
      body: JSON.stringify(body),
      headers: { "content-type": "application/json", authorization },
    });
  return { ...edge, get, post };
}

describe("SAEs at the edge", () => {
  it("are listed from what replicas report, with the model that holds each", async () => {
    const { get, saeCalls } = setUp();
    const response = await get("/v1/saes");
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({
      object: "list",
      data: [
        {
          id: "sae-1",
          object: "sae",
          model: MODEL.id,
          layer: 1,
          hook_point: "blocks.1.hook_resid_post",
          features: 512,
          digest: "00",
          fidelity: "unmeasured",
        },
      ],
    });
    expect(saeCalls).toEqual([]);
  });

  it("are asked about at a replica that holds them, the question as it came", async () => {
    const { get, saeCalls } = setUp();
    const response = await get("/v1/saes/sae-1/features?q=the%20sea&sort=-density&model=tell");
    expect(response.status).toBe(200);
    expect(await response.json()).toEqual({ object: "sae", id: "sae-1" });
    expect(saeCalls).toMatchObject([
      {
        saeId: "sae-1",
        method: "GET",
        path: "/v1/saes/sae-1/features?q=the+sea&sort=-density",
        bodyText: "",
        principal: PRINCIPAL,
        model: { id: MODEL.id },
      },
    ]);
  });

  it("are ranked by a body in the caller's own bytes", async () => {
    const { post, saeCalls } = setUp();
    expect((await post(RANK, { positive: ["a"], negative: ["b"] })).status).toBe(200);
    expect(saeCalls).toMatchObject([{ method: "POST", path: RANK, bodyText: '{"positive":["a"],"negative":["b"]}' }]);
  });

  it("must exist, on the model that is meant", async () => {
    const { get, state, saeCalls } = setUp();
    for (const path of ["/v1/saes/none", "/v1/saes/none/features", "/v1/saes/sae-1?model=other"]) {
      const response = await get(path);
      expect(response.status).toBe(404);
      expect((await errorBodyOf(response)).code).toBe("sae_not_found");
    }
    state.models.push({ ...MODEL, id: "second", pool: "second", aliases: [] });
    const ambiguous = await get("/v1/saes/sae-1");
    expect(ambiguous.status).toBe(400);
    expect((await errorBodyOf(ambiguous)).param).toBe("model");
    expect((await get("/v1/saes/sae-1?model=second")).status).toBe(200);
    expect(saeCalls).toMatchObject([{ model: { id: "second" } }]);
  });

  it("are asked by the right method only", async () => {
    const { get, post } = setUp();
    expect((await get(RANK)).status).toBe(405);
    expect((await post("/v1/saes/sae-1", {})).status).toBe(405);
    expect((await post("/v1/saes", {})).status).toBe(405);
  });

  it("are not asked about while the edge drains", async () => {
    const { get, state } = setUp();
    state.draining = true;
    expect((await get("/v1/saes/sae-1")).status).toBe(503);
  });
});
