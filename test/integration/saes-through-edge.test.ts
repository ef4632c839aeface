import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import { DEMO_MODEL, Stack, until } from "../support/stack.ts";

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
    expect(await ranked.json()).toMatchObject({
      data: [{ index: 264, score: expect.any(Number) }, { index: 501 }],
      usage: { prompt_tokens: expect.any(Number) },
    });
    const wrong = await ask("/saes/demo-l1/features?limit=0");
    expect(wrong.status).toBe(400);
    expect(await wrong.json()).toMatchObject({ error: { param: "limit" } });
  });

  it("cost what a ranking computed, as a row of its own; to look costs nothing (C095)", async () => {
    const texts = { positive: ["The sea was deep."], negative: ["The moon was bright."] };
    const ranked = await ask("/saes/demo-l1/features/rank", texts);
    const { usage } = z.object({ usage: z.object({ prompt_tokens: z.int().min(8) }) }).parse(await ranked.json());
    expect(ranked.headers.get("x-ratelimit-limit-requests")).not.toBeNull();
    await (await ask("/saes/demo-l1/features?limit=1")).json();
    const rows = async (): Promise<unknown[]> =>
      (await stack.cli("usage", "export"))
        .trimEnd()
        .split("\n")
        .map((line): unknown => JSON.parse(line));
    const id = ranked.headers.get("x-request-id");
    await until("the ranking's row is stored", async () => JSON.stringify(await rows()).includes(id ?? "none"));
    expect((await rows()).filter((row) => JSON.stringify(row).includes(id ?? "none"))).toMatchObject([
      { outcome: "completed", prompt_tokens: usage.prompt_tokens, completion_tokens: 0, exactness: "exact" },
    ]);
    // One of each ranking in this file, and none of a look.
    expect(await rows()).toHaveLength(2);
    let [billed, reported]: (string | undefined)[] = [];
    await until("the host reported what the rankings computed", async () => {
      const said = await stack.cli("usage", "check");
      [, billed, reported] = /agrees.* (\d+) tokens billed.* (\d+) tokens reported by hosts/.exec(said) ?? [];
      return reported !== undefined && reported !== "0" && reported === billed;
    });
    expect(Number(billed)).toBeGreaterThan(usage.prompt_tokens);
  });
});
