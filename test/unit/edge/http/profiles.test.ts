import { describe, expect, it } from "vitest";
import { createApp } from "../../../../edge/app.ts";
import { errorBodyOf } from "../../../support/error-body.ts";
import { fakeEdge, GOOD_KEY, MODEL } from "../../../support/edge-deps.ts";

const CHAT = "/v1/chat/completions";
const question = { model: MODEL.id, messages: [{ role: "user", content: "Hello" }] };

function setUp() {
  const edge = fakeEdge();
  edge.state.models = [{ ...MODEL, profiles: [{ name: "sea", saes: ["sae-1"] }] }];
  const app = createApp(edge.deps);
  const headers = { "content-type": "application/json", authorization: `Bearer ${GOOD_KEY}` };
  return {
    ...edge,
    post: (path: string, body: object) => app.request(path, { method: "POST", body: JSON.stringify(body), headers }),
    models: async () => await (await app.request("/v1/models", { headers })).json(),
  };
}

describe("profiles at the edge", () => {
  it("are taken when a replica reported them, and named in the list of models", async () => {
    const { post, models, dispatched } = setUp();
    expect((await post(CHAT, { ...question, profile: "sea", steering_intensity: "max" })).status).toBe(200);
    expect(dispatched).toHaveLength(1);
    expect(await models()).toMatchObject({ data: [{ profiles: ["sea"] }] });
  });

  it.each([
    ["one that nobody has", CHAT, { ...question, profile: "snow" }, "profile"],
    ["one beside steering", CHAT, { ...question, profile: "sea", steering: { features: [] } }, "steering"],
    ["an intensity of nothing", CHAT, { ...question, steering_intensity: 1 }, "steering_intensity"],
    ["too much of one", CHAT, { ...question, profile: "sea", steering_intensity: 3 }, "steering_intensity"],
    ["one for embeddings", "/v1/embeddings", { model: MODEL.id, input: "x", profile: "sea" }, "profile"],
  ])("refuse %s by name", async (_, path, body, param) => {
    const { post, dispatched } = setUp();
    const response = await post(path, body);
    expect([response.status, (await errorBodyOf(response)).param]).toEqual([400, param]);
    expect(dispatched).toEqual([]);
  });
});
