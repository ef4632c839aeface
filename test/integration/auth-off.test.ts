import { afterAll, beforeAll, expect, it } from "vitest";
import { EdgeOnNode } from "../support/edge-on-node.ts";
import { ScriptedEndpoint } from "../support/scripted-endpoint.ts";

let endpoint: ScriptedEndpoint;
let edge: EdgeOnNode;
beforeAll(async () => {
  endpoint = await ScriptedEndpoint.start();
  edge = await EdgeOnNode.start({
    endpoints: [{ id: "other", url: endpoint.url, models: ["m"] }],
    auth: { enabled: false, default_rpm: 1, default_tpm: 1, default_price: { completion_per_1k: 2 } },
  });
});
afterAll(async () => {
  await edge.remove();
  await endpoint.stop();
});

it("without keys everybody is one principal without limits, whatever credential is sent, and rows are written", async () => {
  const body = JSON.stringify({ model: "m", messages: [{ role: "user", content: "Count." }] });
  for (const authorization of [null, "Bearer sk-st-nobody", "Basic eDp5"]) {
    const headers = { "content-type": "application/json", ...(authorization === null ? {} : { authorization }) };
    const answer = await fetch(`${edge.urls.baseUrl}/chat/completions`, { method: "POST", headers, body });
    expect([answer.status, answer.headers.get("x-ratelimit-limit-requests")]).toEqual([200, null]);
    await answer.text();
    expect(await edge.rowOf(answer)).toMatchObject({
      account: "local",
      project: "local",
      keyId: "everybody",
      completionTokens: 5,
      costNanoUsd: "10",
    });
  }
  const key = await fetch(`${edge.urls.baseUrl}/key`);
  expect(await key.json()).toMatchObject({
    id: "everybody",
    scopes: [{ scope: "key", requests_per_minute: null, tokens_per_minute: null, budgets: [] }, {}, {}],
  });
});
