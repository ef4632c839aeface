import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { z } from "zod";
import type { EngineEvent } from "../../backend/ports/engine-events.ts";
import { openEngine, streamData, type EngineHarness } from "../support/engine-harness.ts";
import { DEMO_Q8, nativeAddon, repositoryFile } from "../support/native-harness.ts";

const SAES = "/engine/v1/saes";
const folder = (name: string) => repositoryFile(`backend/demo/${name}`);

let engine: EngineHarness;
beforeAll(async () => {
  engine = await openEngine(await nativeAddon(), { model: "demo", model_path: DEMO_Q8, slots: 1, max_pending: 4 });
});
afterAll(() => engine.stop());

const attach = (id: string, name: string) => engine.post(SAES, { id, path: folder(name) });
const detach = (id: string) => engine.get(`${SAES}/${encodeURIComponent(id)}`, { method: "DELETE" });

const ask = (over: object) =>
  engine.post("/v1/completions", { model: "demo", prompt: "Once upon a time", max_tokens: 8, temperature: 0, ...over });
/** A set needs the encoder while it runs, unlike an addition. */
const steer = (id: string) => ({ steering: { sae_id: id, features: [{ index: 3, mode: "set", strength: 20 }] } });
const layerOf = (receipt: string) => /;layer=(\d+)/u.exec(receipt)?.[1];

const readyEvents = () =>
  engine.events.filter((event): event is Extract<EngineEvent, { type: "ready" }> => event.type === "ready");
async function listed(ids: readonly string[]): Promise<void> {
  while (
    readyEvents()
      .at(-1)
      ?.saes.map(({ id }) => id)
      .join() !== ids.join()
  ) {
    await new Promise((resolve) => setImmediate(resolve));
  }
}

/** A stream that has begun, and the receipt of its end. */
async function beginStream(over: object) {
  const response = await ask({ max_tokens: 900, ignore_eos: true, stream: true, ...over });
  const receipt = streamData(response).then((data) => {
    const closing = data.find((one) => one.includes('"steering"')) ?? "{}";
    return z.object({ steerage: z.object({ steering: z.string() }) }).parse(JSON.parse(closing)).steerage.steering;
  });
  return { receipt };
}

describe("SAEs of a running engine", () => {
  it("are attached, used, told of, and detached", async () => {
    expect((await ask(steer("a"))).status).toBe(400);
    const attached = await attach("a", "demo-l1");
    expect(attached.status).toBe(200);
    expect(await attached.json()).toMatchObject({
      id: "a",
      layer: 1,
      d_sae: 512,
      hook_point: "blocks.1.hook_resid_post",
    });
    await listed(["a"]);
    expect(readyEvents().at(-1)?.capabilities).toContain("steering");
    expect(layerOf((await ask(steer("a"))).headers.get("x-steerage-steering") ?? "")).toBe("1");

    expect(await (await detach("a")).json()).toEqual({ id: "a", detached: true });
    await listed([]);
    expect(readyEvents().at(-1)?.capabilities).not.toContain("steering");
    const refused = await ask(steer("a"));
    expect(await refused.json()).toMatchObject({ error: { code: "sae_not_available" } });
  });

  it("are swapped under requests that run and wait, which finish with what they began with (C074)", async () => {
    await attach("s", "demo-l1");
    const running = await beginStream(steer("s"));
    // One slot: this one waits while the SAE is swapped.
    const waiting = ask({ ...steer("s"), return_sae_activations: { sae_id: "s", positions: "completion" } });
    while (!engine.events.some((event) => event.type === "load" && event.waiting === 1)) {
      await new Promise((resolve) => setImmediate(resolve));
    }
    const swapped = await attach("s", "demo-l2");
    expect(await swapped.json()).toMatchObject({ id: "s", layer: 2 });
    await listed(["s"]);
    const late = await ask(steer("s"));
    expect(layerOf(await running.receipt)).toBe("1");
    const before = await waiting;
    expect(before.status).toBe(200);
    expect(layerOf(before.headers.get("x-steerage-steering") ?? "")).toBe("1");
    expect(layerOf(late.headers.get("x-steerage-steering") ?? "")).toBe("2");
    await detach("s");
  });

  it("share no cells across a swap, though id and strengths are the same", async () => {
    const cached = async () => {
      const answer = await ask(steer("s"));
      const usage = z.object({
        usage: z.looseObject({ prompt_tokens_details: z.looseObject({ cached_tokens: z.int() }) }),
      });
      return usage.parse(await answer.json()).usage.prompt_tokens_details.cached_tokens;
    };
    await attach("s", "demo-l1");
    await cached();
    expect(await cached()).toBeGreaterThan(0);
    await attach("s", "demo-l2");
    expect(await cached()).toBe(0);
    await detach("s");
  });

  it.each([
    [{ id: "x", path: "/nowhere" }, "path"],
    [{ id: "x", path: folder("demo-l1"), layer: 9 }, "path"],
    [{ id: "", path: "/nowhere" }, "id"],
    [{ id: "x" }, "path"],
  ])("%j is refused by name and changes nothing", async (body, param) => {
    await listed([]);
    const told = readyEvents().length;
    const response = await engine.post(SAES, body);
    expect(response.status).toBe(400);
    expect(await response.json()).toMatchObject({ error: { param } });
    expect(readyEvents()).toHaveLength(told);
  });

  it("that are not there cannot be detached, and other methods are told apart", async () => {
    expect((await detach("nobody")).status).toBe(400);
    expect((await engine.get(SAES)).status).toBe(405);
    expect((await engine.get(`${SAES}/%`, { method: "DELETE" })).status).toBe(404);
  });
});
