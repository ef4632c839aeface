import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { DEMO_MODEL, Stack } from "../support/stack.ts";

let stack: Stack;
beforeAll(async () => {
  stack = await Stack.start();
});
afterAll(() => stack.stop());

const ask = (path: string, body?: unknown) =>
  fetch(`${stack.baseUrl}${path}`, {
    method: body === undefined ? "GET" : "POST",
    headers: { authorization: `Bearer ${stack.key}`, "content-type": "application/json" },
    ...(body === undefined ? {} : { body: JSON.stringify(body) }),
  });

describe("SAEs through edge, host and engine", () => {
  it("are listed with what was measured when they were loaded", async () => {
    expect(await (await ask("/saes")).json()).toMatchObject({
      object: "list",
      data: [{ id: "demo-l1", model: DEMO_MODEL, layer: 1, fidelity: { explained_variance: expect.any(Number) } }],
    });
  });

  it("are searched, shown and ranked with any key", async () => {
    expect(await (await ask("/saes/demo-l1")).json()).toMatchObject({ id: "demo-l1", format: "saelens" });
    expect(await (await ask("/saes/demo-l1/features?q=sea%20theme&limit=2")).json()).toMatchObject({
      sae_id: "demo-l1",
      data: [{ label: expect.stringContaining("sea") }, {}],
    });
    expect(await (await ask("/saes/demo-l1/features/501")).json()).toMatchObject({ index: 501 });
    const ranked = await ask("/saes/demo-l1/features/rank", {
      positive: ["The sailor rowed a boat to the harbour. The sea was deep."],
      negative: ["The astronaut landed the rocket on the moon. The stars were shiny."],
      limit: 2,
    });
    expect(ranked.status).toBe(200);
    expect(await ranked.json()).toMatchObject({ data: [{ index: 264, score: expect.any(Number) }, { index: 501 }] });
    const wrong = await ask("/saes/demo-l1/features?limit=0");
    expect(wrong.status).toBe(400);
    expect(await wrong.json()).toMatchObject({ error: { param: "limit" } });
  });

  it("cost nobody anything: neither ledger nor host counts them", async () => {
    const check = await stack.cli("usage", "check");
    expect(check).toMatch(/\b0\b/);
  });
});
