import { describe, expect, it } from "vitest";
import { errorOf, manualBench, replica, type DispatchBenchOptions } from "../../../support/dispatch-bench.ts";
import { inferenceRequest, RecordingWriter, servedModel } from "../../../support/dispatch-fakes.ts";
import { delta, finish, usageChunk } from "../../../support/scripted-exchange.ts";
import { waitFor } from "../../../support/scripted-upstream.ts";
import { DEFAULT_BAND } from "../../../../edge/admission/settings.ts";
import { costBoundNanoUsd } from "../../../../edge/dispatch/outgoing/bounds.ts";
import type { ServedModel } from "../../../../edge/ports/fleet.ts";

const first: ServedModel = { ...servedModel, fallbacks: ["spare", "last"] };
const spare: ServedModel = { ...servedModel, id: "spare", pool: "spare", contextLength: 8_192 };
const last: ServedModel = { ...servedModel, id: "last", pool: "last", capabilities: ["chat", "completions", "tools"] };
const prices: Readonly<Record<string, number>> = { m: 2, spare: 5, last: 11 };

/** The model `m` with two that stand in for it, each with one machine and a price of its own. */
async function bench(options: Partial<DispatchBenchOptions> & { models?: readonly ServedModel[] } = {}) {
  const { models = [first, spare, last], ...more } = options;
  const made = await manualBench({
    replicas: [replica("gpu/m")],
    otherPools: {
      spare: [replica("hpc/spare", { target: { model: "spare" }, contextLength: 8_192 })],
      last: [replica("cpu/last", { target: { model: "last" } })],
    },
    fleet: { resolve: (name) => Promise.resolve(models.find(({ id }) => id === name) ?? null) },
    ...more,
    settings: {
      priceOf: (id) => {
        const each = prices[id] ?? 0;
        return { price: { promptPer1k: each, cachedPer1k: each, completionPer1k: each }, priceVersion: 3 };
      },
      ...more.settings,
    },
  });
  let asked = 0;
  const askFor = (body: Record<string, unknown> = {}) =>
    made.ask(body, { model: models[0] ?? first, requestId: `r${++asked}` });
  return { ...made, askFor };
}

describe("a model with fallbacks (C119)", () => {
  it("is answered by the next one when its machines failed before the first byte, at that one's name and price", async () => {
    const { askFor, exchange, ledger, limits, metrics, inFlight } = await bench();
    const { writer, done } = askFor({ stream: true, max_tokens: 10 });
    (await exchange(0)).fail("closed_before_headers");
    const second = await exchange(1);
    expect(second.request.url).toContain("hpc.test");
    expect(JSON.parse(second.bodyText)).toMatchObject({ model: "spare" });
    second.stream().data(delta("a"), finish("stop"), usageChunk(3, 1), "[DONE]").end();
    await done;
    expect(writer.headers["x-steerage-route"]).toBe("hpc/spare;attempts=2;model=spare");
    expect(ledger.opened).toMatchObject([{ model: "m", price: { promptPer1k: 2 } }]);
    expect(ledger.started).toMatchObject([
      { attempt: 1, backend: "gpu" },
      { attempt: 2, backend: "hpc", served: { model: "spare", price: { promptPer1k: 5 }, priceVersion: 3 } },
    ]);
    expect(ledger.started[0]).not.toHaveProperty("served");
    expect(ledger.settled).toMatchObject([
      { backend: "hpc", attempts: [{ unbilledReason: "retry" }, { unbilledReason: null }] },
    ]);
    // The dearest of the three was reserved, and what the second costs was taken.
    const sent = inferenceRequest({ stream: true, max_tokens: 10 }, { model: last, receivedAtMs: 0 });
    const each = { promptPer1k: 11, cachedPer1k: 11, completionPer1k: 11 };
    expect(limits.reserved[0]?.costBoundNanoUsd).toBe(costBoundNanoUsd(sent, each).toString());
    expect(limits.settled).toMatchObject([{ costNanoUsd: String(4 * 5) }]);
    expect(metrics.ended).toMatchObject([{ model: "spare", outcome: "completed" }]);
    expect(await inFlight()).toBe(0);
  });

  it("is not waited for while it has no machine and another has: the row is opened as the other", async () => {
    const { askFor, exchange, ledger } = await bench({
      models: [{ ...first, readyReplicas: 0 }, { ...spare, readyReplicas: 0 }, last],
      replicas: [],
    });
    const { writer, done } = askFor();
    const only = await exchange(0);
    expect(only.request.url).toContain("cpu.test");
    only.headers(200, { "content-type": "application/json" }).text("{}").end();
    await done;
    expect(writer.headers["x-steerage-route"]).toBe("cpu/last;attempts=1;model=last");
    expect(ledger.opened).toMatchObject([{ model: "last", price: { promptPer1k: 11 } }]);
    expect(ledger.started[0]).not.toHaveProperty("served");
  });

  it("is answered by the next one when its queue refuses", async () => {
    const { askFor, exchange, clock, limits } = await bench({ replicas: [replica("gpu/m", { slots: 1 })] });
    askFor();
    await exchange(0);
    const { writer, done } = askFor();
    await waitFor(() => limits.reserved.length === 2);
    await Promise.resolve();
    // The first goes on, in its own time: only the second has waited too long.
    for (let second = 0; second < 60; second++) {
      clock.advance(1_000);
      await Promise.resolve();
    }
    (await exchange(1)).headers(200, { "content-type": "application/json" }).text("{}").end();
    await done;
    expect(writer.headers["x-steerage-route"]).toBe("hpc/spare;attempts=1;model=spare");
  });

  it("is answered by one with a longer context when the prompt is too long for it", async () => {
    const { askFor, exchange } = await bench();
    askFor({ messages: [{ role: "user", content: "word ".repeat(5_000) }] });
    expect((await exchange(0)).request.url).toContain("hpc.test");
  });

  it("tells its own reason when nobody could serve, and the last machine's when some were tried", async () => {
    const busy = { readyReplicas: 1, failure: null };
    const { askFor, ledger } = await bench({
      models: [
        { ...first, failure: "its file cannot be loaded" },
        { ...spare, ...busy, failure: "its engine does not answer" },
      ],
    });
    const refused = askFor();
    await refused.done;
    expect(errorOf(refused.writer).message).toContain("'m' works: its file cannot be loaded");
    expect(ledger.shedRequests).toMatchObject([{ model: "m" }]);

    const tried = await bench();
    const { writer, done } = tried.askFor();
    (await tried.exchange(0)).fail("closed_before_headers");
    const body = { error: { message: "broken", type: "server_error", param: null, code: "engine_failed" } };
    (await tried.exchange(1)).headers(500).text(JSON.stringify(body)).end();
    (await tried.exchange(2)).fail("unreachable");
    await done;
    expect(errorOf(writer).code).toBe("upstream_unreachable");
    expect(tried.ledger.settled).toMatchObject([{ outcome: "failed", backend: "cpu" }]);
  });

  it("tells the computed wait of a stand-in's full queue rather than that it is too long for the model asked for", async () => {
    const full = [replica("hpc/spare", { slots: 1, contextLength: 8_192 })];
    const { askFor, exchange, ledger } = await bench({
      models: [{ ...first, fallbacks: ["spare"] }, spare],
      otherPools: { spare: full },
      admission: {
        bands: [{ ...DEFAULT_BAND, name: "default", queueCapacityRequests: 1 }],
      },
    });
    const long = { messages: [{ role: "user", content: "word ".repeat(5_000) }] };
    askFor(long);
    await exchange(0);
    askFor(long);
    const { writer, done } = askFor(long);
    await done;
    expect([writer.status, errorOf(writer).code]).toEqual([429, "queue_full"]);
    expect(Number(writer.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    expect(ledger.shedRequests).toMatchObject([{ model: "m" }]);
  });

  it("stays where it is for the caller's own fault, and once the client has something of an answer", async () => {
    const { askFor, exchange, upstream } = await bench();
    const refused = askFor();
    (await exchange(0)).headers(400).text('{"error":{"message":"no"}}').end();
    await refused.done;
    expect(refused.writer.status).toBe(400);
    const begun = askFor({ stream: true });
    (await exchange(1)).stream().data(delta("a")).fail("closed_in_body");
    await begun.done;
    expect(upstream.exchanges).toHaveLength(2);
  });

  it("never falls back for a request that steers: its features are those of one model", async () => {
    const { askFor, exchange, upstream } = await bench({ replicas: [replica("gpu/m", { saes: ["s"] })] });
    const { done } = askFor({ steering: { sae_id: "s", features: [{ index: 1, strength: 2 }] } });
    (await exchange(0)).fail("closed_before_headers");
    await done;
    expect(upstream.exchanges).toHaveLength(1);
  });

  it("never falls back for embeddings: vectors of two models do not compare", async () => {
    const able = { ...first, capabilities: ["embeddings"] };
    const { dispatcher, exchange, upstream, clock } = await bench({
      models: [able, { ...spare, capabilities: [] }, last],
    });
    const options = { route: "/v1/embeddings", model: able, receivedAtMs: clock.nowMs() } as const;
    const done = dispatcher.run(inferenceRequest({ input: "x" }, options), new RecordingWriter());
    (await exchange(0)).fail("closed_before_headers");
    await done;
    expect(upstream.exchanges).toHaveLength(1);
  });

  it("leaves out who cannot do what is asked, and is a 400 without a limit where nobody can", async () => {
    const tools = { tools: [{ type: "function", function: { name: "f" } }] };
    const some = await bench({ models: [{ ...first, lacks: ["tools"] }, { ...spare, lacks: ["tools"] }, last] });
    some.askFor(tools);
    expect((await some.exchange(0)).request.url).toContain("cpu.test");

    const none = await bench({ models: [{ ...first, lacks: ["tools"] }] });
    const { writer, done } = none.askFor(tools);
    await done;
    expect([writer.status, errorOf(writer).param]).toEqual([400, "tools"]);
    expect(none.limits.reserved).toEqual([]);
  });
});

describe("a prompt that no replica can hold", () => {
  it("is refused with both numbers, without a row, and waits for nobody", async () => {
    const { askFor, ledger, limits, upstream } = await bench({ models: [servedModel] });
    const { writer, done } = askFor({ messages: [{ role: "user", content: "word ".repeat(5_000) }] });
    await done;
    expect(writer.status).toBe(400);
    expect(errorOf(writer)).toMatchObject({ code: "context_length_exceeded", param: "messages" });
    expect(errorOf(writer).message).toContain("4096");
    expect(errorOf(writer).message).toContain("5000");
    expect(upstream.exchanges).toEqual([]);
    expect([ledger.opened, ledger.shedRequests]).toEqual([[], []]);
    expect(limits.settled).toMatchObject([{ uncounted: true }]);
  });
});
