import { describe, expect, it } from "vitest";
import { ApiError } from "../../../../shared/errors/api-error.ts";
import { inferenceClaimsSchema } from "../../../../shared/protocol/inference-token.ts";
import { dispatchBench, replica, type DispatchBenchOptions } from "../../../support/dispatch-bench.ts";
import { inferenceRequest, RecordingLimits, RecordingWriter, servedModel } from "../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { delta, FakeUpstream, finish, usageChunk, type FakeExchange } from "../../../support/scripted-exchange.ts";
import { waitFor } from "../../../support/scripted-upstream.ts";

async function bench(options: Partial<Omit<DispatchBenchOptions, "clock" | "upstream">> = {}) {
  const clock = new ManualClock();
  const upstream = new FakeUpstream();
  const made = await dispatchBench({ clock, upstream, replicas: [replica("gpu/r1")], ...options });
  const ask = (body: Record<string, unknown> = {}, more: { requestId?: string; model?: typeof servedModel } = {}) => {
    const writer = new RecordingWriter();
    const done = made.dispatcher.run(inferenceRequest(body, { receivedAtMs: clock.nowMs(), ...more }), writer);
    return { writer, done };
  };
  const exchange = (place: number): Promise<FakeExchange> => waitFor(() => upstream.exchanges[place]);
  return { ...made, clock, upstream, ask, exchange };
}

const errorOf = (writer: RecordingWriter): { code: string; message: string; param: string | null } => {
  const body: { error: { code: string; message: string; param: string | null } } = JSON.parse(writer.text);
  return body.error;
};

describe("a streamed request", () => {
  it("passes through, is settled exactly, and gives everything back", async () => {
    const { ask, exchange, ledger, limits, metrics, inFlight, clock, upstream } = await bench();
    const { writer, done } = ask({ stream: true });
    const machine = await exchange(0);
    clock.advance(10);
    machine.stream({ "x-steerage-steering": "none" }).data(delta("a"));
    expect(writer.status).toBe(200);
    expect(await inFlight()).toBe(1);
    clock.advance(30);
    machine.data(delta("b"), delta("c"), finish("stop"), usageChunk(7, 3, 2), "[DONE]").end();
    await done;
    expect(writer.events).toEqual(
      [delta("a"), delta("b"), delta("c"), finish("stop")].map((d) => JSON.stringify(d)).concat("[DONE]"),
    );
    expect(writer.ended).toBe(true);
    expect(writer.headers).toMatchObject({
      "x-request-id": "req_0000000000000000000001",
      "x-steerage-steering": "none",
      "x-steerage-route": "gpu/r1;attempts=1",
      "x-ratelimit-limit-requests": "10",
      "x-ratelimit-remaining-requests": "9",
      "x-ratelimit-reset-requests": "6s",
      "content-type": "text/event-stream; charset=utf-8",
    });
    expect(ledger.opened).toMatchObject([{ requestId: "req_0000000000000000000001", model: "m", priceVersion: 3 }]);
    expect(ledger.started).toMatchObject([{ attempt: 1, backend: "gpu", replica: "r1", epoch: 1 }]);
    expect(ledger.settled).toMatchObject([
      {
        outcome: "completed",
        backend: "gpu",
        ttftMs: 10,
        tpotMs: 15,
        totalMs: 40,
        attempts: [
          {
            attempt: 1,
            counts: { promptTokens: 7, cachedTokens: 2, completionTokens: 3 },
            exactness: "exact",
            unbilledReason: null,
            awaitReport: false,
          },
        ],
      },
    ]);
    // 5 new prompt tokens at 2, 2 cached at 1, 3 completion tokens at 6.
    expect(limits.settled).toMatchObject([{ totalTokens: 10, completionTokens: 3, costNanoUsd: "30" }]);
    expect(await inFlight()).toBe(0);
    expect(metrics.started).toBe(1);
    expect(metrics.ended).toEqual([{ model: "m", outcome: "completed", ttftMs: 10, tpotMs: 15 }]);
    expect(clock.pendingTimers).toBe(0);
    expect(upstream.exchanges).toHaveLength(1);
  });

  it("asks the machine for usage with the fewest edits of the caller's text, and signs what it sends", async () => {
    const { ask, exchange } = await bench();
    ask({ stream: true, temperature: 0.5 });
    const { request, bodyText } = await exchange(0);
    expect(bodyText).toBe(
      '{"stream_options":{"include_usage":true},"model":"m","messages":[{"role":"user","content":"hi"}],"stream":true,"temperature":0.5}',
    );
    expect(request.url).toBe("http://gpu.test/v1/chat/completions");
    expect(Object.keys(request.headers).toSorted()).toEqual(["accept", "authorization", "content-type"]);
    const claims = inferenceClaimsSchema
      .omit({ iss: true, iat: true, exp: true })
      .parse(JSON.parse((request.headers["authorization"] ?? "").slice("Bearer signed:".length)));
    expect(claims).toMatchObject({
      aud: "gpu",
      jti: "req_0000000000000000000001.1",
      method: "POST",
      path: "/v1/chat/completions",
      replica: "r1",
      cache_salt: "p1",
    });
    expect(claims.body_sha256).toMatch(/^[0-9a-f]{64}$/);
  });

  it("gives the caller usage when he asked for it", async () => {
    const { ask, exchange } = await bench();
    const { writer, done } = ask({ stream: true, stream_options: { include_usage: true } });
    (await exchange(0)).stream().data(delta("a"), finish("length"), usageChunk(1, 1), "[DONE]").end();
    await done;
    expect(writer.events.at(-2)).toBe(JSON.stringify(usageChunk(1, 1)));
  });

  it("keeps the receipt's hash from the steerage chunk", async () => {
    const { ask, exchange, ledger } = await bench();
    const { writer, done } = ask({ stream: true });
    const hash = "ab".repeat(32);
    const steerage = {
      ...delta(""),
      choices: [],
      steerage: { steering: `inline;sae="s";layer=1;features=1;hash="${hash}"` },
    };
    (await exchange(0)).stream().data(delta("a"), finish("stop"), steerage, usageChunk(1, 1), "[DONE]").end();
    await done;
    expect(writer.events.at(-2)).toBe(JSON.stringify(steerage));
    expect(ledger.settled[0]?.steeringHash).toBe(hash);
  });

  it("that stops without an end mark ends with an error event and is failed", async () => {
    const { ask, exchange, ledger } = await bench();
    const { writer, done } = ask({ stream: true });
    (await exchange(0)).stream().data(delta("a"), finish("stop")).end();
    await done;
    expect(writer.events.at(-1)).toContain('"code":"upstream_truncated"');
    expect(writer.text).not.toContain("[DONE]");
    expect(ledger.settled).toMatchObject([
      { outcome: "failed", attempts: [{ exactness: "counted", awaitReport: true, unbilledReason: null }] },
    ]);
  });

  it("that ends without any finish reason is marked as truncated, and no reason is invented", async () => {
    const { ask, exchange } = await bench();
    const { writer, done } = ask({ stream: true });
    (await exchange(0)).stream().data(delta("a"), "[DONE]").end();
    await done;
    expect(writer.events.at(-1)).toContain('"code":"upstream_truncated"');
  });

  it("passes a backend's error event on and closes without an end mark", async () => {
    const { ask, exchange, ledger } = await bench();
    const { writer, done } = ask({ stream: true });
    const machine = await exchange(0);
    machine
      .stream()
      .data(delta("a"), { error: { message: "boom", type: "server_error", param: null, code: "engine_crashed" } });
    await done;
    expect(machine.aborted).toBe(true);
    expect(JSON.parse(writer.events.at(-1) ?? "")).toEqual({
      error: { message: "boom", type: "server_error", param: null, code: "engine_crashed" },
    });
    expect(ledger.settled[0]?.outcome).toBe("failed");
  });

  it("sends a comment when nothing came for long, and a later refusal is an event", async () => {
    const { ask, exchange, clock } = await bench({ settings: { retries: 0 } });
    const { writer, done } = ask({ stream: true });
    const machine = await exchange(0);
    clock.advance(15_000);
    expect(writer.status).toBe(200);
    expect(writer.text).toMatch(/^: *\n\n$/);
    machine.fail("closed_before_headers");
    await done;
    expect(writer.events.at(-1)).toContain('"code":"upstream_error"');
  });
});

describe("a whole request", () => {
  it("passes bytes through with the machine's receipt, and usage is read on the way", async () => {
    const { ask, exchange, ledger } = await bench();
    const { writer, done } = ask();
    const machine = await exchange(0);
    expect(machine.bodyText).toBe('{"model":"m","messages":[{"role":"user","content":"hi"}]}');
    const body = JSON.stringify({ choices: [], usage: { prompt_tokens: 4, completion_tokens: 2, total_tokens: 6 } });
    machine.headers(200, {
      "content-type": "application/json",
      "x-steerage-steering": "none",
      "x-internal": "secret",
      "set-cookie": "a=b",
    });
    machine.text(body.slice(0, 10)).text(body.slice(10)).end();
    await done;
    expect(writer.text).toBe(body);
    expect(writer.headers).toMatchObject({ "x-steerage-steering": "none", "content-type": "application/json" });
    expect(writer.headers).not.toHaveProperty("x-internal");
    expect(writer.headers).not.toHaveProperty("set-cookie");
    expect(ledger.settled).toMatchObject([
      { outcome: "completed", attempts: [{ counts: { promptTokens: 4, completionTokens: 2 }, exactness: "exact" }] },
    ]);
  });

  it("breaks the client's connection when the machine's breaks in the middle", async () => {
    const { ask, exchange, ledger } = await bench();
    const { writer, done } = ask();
    (await exchange(0)).headers(200, { "content-type": "application/json" }).text("{").fail("closed_in_body");
    await done;
    expect(writer.destroyed).toBe(true);
    expect(ledger.settled).toMatchObject([
      { outcome: "failed", attempts: [{ unbilledReason: "failed_before_first_token", awaitReport: true }] },
    ]);
  });

  it("may take longer than a stream's headers may, but not for ever", async () => {
    const { ask, exchange, clock, ledger } = await bench();
    const { writer, done } = ask();
    const machine = await exchange(0);
    clock.advance(599_999);
    expect(machine.aborted).toBe(false);
    clock.advance(1);
    await done;
    expect(machine.aborted).toBe(true);
    expect(writer.status).toBe(504);
    expect(errorOf(writer).code).toBe("generation_timeout");
    expect(ledger.settled[0]?.outcome).toBe("expired");
  });
});

describe("a client that leaves", () => {
  it("in the middle of a stream closes the machine's connection in the same tick", async () => {
    const { ask, exchange, ledger, limits, dispatcher, inFlight, clock } = await bench();
    const { writer, done } = ask({ stream: true });
    const machine = await exchange(0);
    machine.stream().data(delta("a"), delta("b"));
    writer.leave();
    expect(machine.aborted).toBe(true);
    await done;
    expect(await inFlight()).toBe(0);
    expect(ledger.settled).toMatchObject([
      {
        outcome: "cancelled",
        attempts: [{ exactness: "counted", awaitReport: true, counts: { completionTokens: 2 } }],
      },
    ]);
    // The reservation waits for the exact count, and is given back once.
    expect(limits.settled).toEqual([]);
    expect(dispatcher.openReservations).toBe(1);
    const exact = { counts: { promptTokens: 5, cachedTokens: 0, completionTokens: 4 }, costNanoUsd: 34n };
    dispatcher.onSettled({ requestId: "req_0000000000000000000001", account: "acme", ...exact });
    dispatcher.onSettled({ requestId: "req_0000000000000000000001", account: "acme", ...exact });
    expect(limits.settled).toMatchObject([{ totalTokens: 9, costNanoUsd: "34" }]);
    expect(clock.pendingTimers).toBe(0);
  });

  it("gives its reservation back by the edge's own count when no report ever comes", async () => {
    const { ask, exchange, limits, clock } = await bench();
    const { writer, done } = ask({ stream: true });
    (await exchange(0)).stream().data(delta("a"));
    writer.leave();
    await done;
    clock.advance(60_000);
    expect(limits.settled).toMatchObject([{ completionTokens: 1 }]);
  });

  it("before the machine answered closes that connection too", async () => {
    const { ask, exchange, ledger, inFlight } = await bench();
    const { writer, done } = ask();
    const machine = await exchange(0);
    writer.leave();
    expect(machine.aborted).toBe(true);
    await done;
    expect(await inFlight()).toBe(0);
    expect(ledger.settled).toMatchObject([
      { outcome: "cancelled", attempts: [{ counts: { promptTokens: 0 }, awaitReport: true }] },
    ]);
  });

  it("while it waits leaves the queue, nothing is sent, and the row says cancelled", async () => {
    const { ask, exchange, upstream, coordinator, ledger, limits } = await bench({
      replicas: [replica("gpu/r1", { slots: 1 })],
    });
    ask({ stream: true }, { requestId: "req_0000000000000000000001" });
    await exchange(0);
    const second = ask({ stream: true }, { requestId: "req_0000000000000000000002" });
    await waitFor(() => limits.reserved.length === 2);
    second.writer.leave();
    await second.done;
    expect((await coordinator.stats())[0]?.queueDepthByBand).toEqual({});
    expect(upstream.exchanges).toHaveLength(1);
    expect(ledger.settled).toMatchObject([
      { requestId: "req_0000000000000000000002", outcome: "cancelled", attempts: [] },
    ]);
    expect(limits.settled).toMatchObject([{ totalTokens: 0 }]);
  });

  it("and a client that takes nothing for long is dropped, alone", async () => {
    const { ask, exchange, clock } = await bench();
    const { writer, done } = ask({ stream: true });
    const machine = await exchange(0);
    machine.stream();
    writer.room = false;
    machine.data(delta("a"));
    expect(machine.room).toBe(false);
    clock.advance(59_000);
    expect(machine.aborted).toBe(false);
    clock.advance(1_000);
    await done;
    expect(machine.aborted).toBe(true);
    expect(writer.destroyed).toBe(true);
  });
});

describe("back-pressure", () => {
  it("reaches the machine, and room for the client resumes it", async () => {
    const { ask, exchange } = await bench();
    const { writer, done } = ask({ stream: true });
    const machine = await exchange(0);
    machine.stream();
    writer.room = false;
    machine.data(delta("a"));
    expect(machine.room).toBe(false);
    writer.drain();
    expect(machine.resumed).toBe(1);
    machine.data(finish("stop"), "[DONE]").end();
    await done;
    expect(writer.ended).toBe(true);
  });
});

describe("another attempt", () => {
  const two = [replica("gpu/r1"), replica("hpc/r1", { priority: 1 })];

  it.each(["unreachable", "dial_timeout", "closed_before_headers"] as const)(
    "follows on another machine when the first is %s, as one row with both attempts",
    async (failure) => {
      const { ask, exchange, ledger, inFlight } = await bench({ replicas: two });
      const { writer, done } = ask({ stream: true });
      (await exchange(0)).fail(failure);
      const second = await exchange(1);
      expect(second.request.url).toContain("hpc.test");
      second.stream().data(delta("a"), finish("stop"), usageChunk(3, 1), "[DONE]").end();
      await done;
      expect(writer.headers["x-steerage-route"]).toBe("hpc/r1;attempts=2");
      expect(ledger.opened).toHaveLength(1);
      expect(ledger.settled).toMatchObject([
        {
          outcome: "completed",
          backend: "hpc",
          attempts: [
            { attempt: 1, unbilledReason: "retry", counts: { completionTokens: 0 } },
            { attempt: 2, unbilledReason: null, counts: { completionTokens: 1 } },
          ],
        },
      ]);
      expect(await inFlight()).toBe(0);
    },
  );

  it.each([502, 503, 429, 401])("follows when the first machine says %i", async (status) => {
    const { ask, exchange } = await bench({ replicas: two });
    const { writer, done } = ask();
    (await exchange(0)).headers(status, { "content-type": "application/json" }).text("{}").end();
    (await exchange(1)).headers(200, { "content-type": "application/json" }).text("{}").end();
    await done;
    expect(writer.status).toBe(200);
  });

  it.each([400, 404, 500])("does not follow a %i", async (status) => {
    const { ask, exchange, upstream } = await bench({ replicas: two });
    const { writer, done } = ask();
    const body = {
      error: { message: "no", type: "invalid_request_error", param: "messages", code: "invalid_messages" },
    };
    (await exchange(0)).headers(status).text(JSON.stringify(body)).end();
    await done;
    expect(upstream.exchanges).toHaveLength(1);
    expect(writer.status).toBe(status);
    expect(JSON.parse(writer.text)).toEqual(body);
    expect(writer.headers["x-steerage-error-source"]).toBe("backend");
  });

  it("never follows once the client has something of an answer", async () => {
    const { ask, exchange, upstream } = await bench({ replicas: two });
    const { done } = ask({ stream: true });
    (await exchange(0)).stream().fail("closed_in_body");
    await done;
    expect(upstream.exchanges).toHaveLength(1);
  });

  it("does not go to a machine that was tried; the last machine's own words reach the caller", async () => {
    const { ask, exchange, upstream, ledger } = await bench();
    const { writer, done } = ask();
    const body = { error: { message: "busy", type: "server_error", param: null, code: "engine_busy" } };
    (await exchange(0)).headers(503, { "retry-after": "7" }).text(JSON.stringify(body)).end();
    await done;
    expect(upstream.exchanges).toHaveLength(1);
    expect(writer.status).toBe(503);
    expect(writer.headers["retry-after"]).toBe("7");
    expect(errorOf(writer).code).toBe("engine_busy");
    expect(ledger.settled).toMatchObject([
      {
        outcome: "failed",
        attempts: [{ exactness: "exact", awaitReport: false, unbilledReason: "failed_before_first_token" }],
      },
    ]);
    expect(ledger.shedRequests).toEqual([]);
  });

  it("is made at most as often as configured", async () => {
    const { ask, exchange, upstream } = await bench({
      replicas: ["a/r", "b/r", "c/r", "d/r"].map((key) => replica(key)),
    });
    const { writer, done } = ask();
    for (let place = 0; place < 3; place++) (await exchange(place)).fail("unreachable");
    await done;
    expect(upstream.exchanges).toHaveLength(3);
    expect(new Set(upstream.exchanges.map(({ request }) => request.url)).size).toBe(3);
    expect(writer.status).toBe(502);
    expect(errorOf(writer).code).toBe("upstream_unreachable");
  });
});

describe("a refusal", () => {
  it("by a rate limit is a shed row and reaches no machine", async () => {
    const { ask, limits, ledger, upstream, metrics } = await bench();
    limits.refusal = RecordingLimits.refusing("rate_limit_exceeded");
    const { writer, done } = ask();
    await done;
    expect(writer.status).toBe(429);
    expect(writer.headers).toMatchObject({
      "retry-after": "7",
      "x-ratelimit-limit-requests": "10",
      "x-steerage-error-source": "edge",
    });
    expect(errorOf(writer).message).toContain("10 requests a minute");
    expect(ledger.shedRequests).toHaveLength(1);
    expect(limits.settled).toEqual([]);
    expect(upstream.exchanges).toEqual([]);
    expect(metrics.ended).toMatchObject([{ outcome: "shed" }]);
  });

  it("for want of any machine comes after ten seconds, with Retry-After and a shed row", async () => {
    const { ask, clock, ledger, limits } = await bench({ replicas: [replica("gpu/r1", { ready: false })] });
    const { writer, done } = ask();
    await waitFor(() => limits.reserved.length === 1);
    await Promise.resolve();
    clock.advance(10_000);
    await done;
    expect(writer.status).toBe(503);
    expect(errorOf(writer).code).toBe("no_replica_available");
    expect(writer.headers["retry-after"]).toBe("10");
    expect(ledger.shedRequests).toHaveLength(1);
    expect(limits.settled).toMatchObject([{ totalTokens: 0, costNanoUsd: "0" }]);
  });

  it("for an SAE that nobody holds names those that are there, and leaves no row", async () => {
    const { ask, ledger, limits } = await bench({ replicas: [replica("gpu/r1", { saes: ["demo-l1"] })] });
    const { writer, done } = ask({ steering: { sae_id: "other", features: [{ index: 1, strength: 2 }] } });
    await done;
    expect(writer.status).toBe(400);
    expect(errorOf(writer)).toMatchObject({ code: "sae_not_available" });
    expect(errorOf(writer).message).toContain("demo-l1");
    expect([ledger.opened, ledger.settled, ledger.shedRequests]).toEqual([[], [], []]);
    expect(limits.settled).toHaveLength(1);
  });

  it("for a kind of request that the model does not do takes no limit", async () => {
    const { dispatcher, limits, clock } = await bench();
    const writer = new RecordingWriter();
    await dispatcher.run(
      inferenceRequest({ input: "x" }, { route: "/v1/embeddings", receivedAtMs: clock.nowMs() }),
      writer,
    );
    expect(writer.status).toBe(400);
    expect(errorOf(writer).param).toBe("model");
    expect(limits.reserved).toEqual([]);
  });

  it("because the journal is full gives the claim and the reservation back", async () => {
    const { ask, ledger, limits, upstream, inFlight } = await bench();
    ledger.openFails = new ApiError("usage_journal_full");
    const { writer, done } = ask();
    await done;
    expect(writer.status).toBe(503);
    expect(errorOf(writer).code).toBe("usage_journal_full");
    expect(upstream.exchanges).toEqual([]);
    expect(limits.settled).toHaveLength(1);
    expect(await inFlight()).toBe(0);
  });

  it("with an error body that is none becomes upstream_error", async () => {
    const { ask, exchange } = await bench();
    const { writer, done } = ask();
    (await exchange(0)).headers(500, { "content-type": "text/html" }).text("<html>at /srv/engine.py</html>").end();
    await done;
    expect(writer.status).toBe(502);
    expect(errorOf(writer).code).toBe("upstream_error");
    expect(writer.text).not.toContain("engine.py");
  });
});

describe("time limits", () => {
  it.each([
    ["response_header_timeout", 30_000, () => undefined],
    ["first_token_timeout", 60_000, (machine: FakeExchange) => void machine.stream()],
    ["idle_timeout", 30_000, (machine: FakeExchange) => void machine.stream().data(delta("a"))],
  ])("of a stream end it with %s", async (code, afterMs, begin) => {
    const { ask, exchange, clock } = await bench();
    const { writer, done } = ask({ stream: true });
    const machine = await exchange(0);
    begin(machine);
    clock.advance(afterMs - 1);
    expect(machine.aborted).toBe(false);
    clock.advance(1);
    await done;
    expect(machine.aborted).toBe(true);
    expect(writer.text).toContain(`"code":"${code}"`);
  });

  it("are not kept alive by comments of the machine", async () => {
    const { ask, exchange, clock } = await bench();
    const { done } = ask({ stream: true });
    const machine = await exchange(0);
    machine.stream().data(delta("a"));
    for (let second = 0; second < 30; second++) {
      machine.text(": ping\n\n");
      clock.advance(1_000);
    }
    await done;
    expect(machine.aborted).toBe(true);
  });

  it("of the whole request hold in the queue too", async () => {
    const { ask, exchange, clock, ledger, limits } = await bench({
      replicas: [replica("gpu/r1", { slots: 1 })],
      settings: {
        timeouts: {
          dialMs: 0,
          responseHeaderMs: 0,
          firstTokenMs: 0,
          idleMs: 0,
          generationMs: 0,
          totalMs: 5_000,
          clientStallMs: 0,
        },
      },
    });
    ask({}, { requestId: "req_0000000000000000000001" });
    await exchange(0);
    const second = ask({}, { requestId: "req_0000000000000000000002" });
    await waitFor(() => limits.reserved.length === 2);
    await Promise.resolve();
    clock.advance(5_000);
    await second.done;
    expect(errorOf(second.writer).code).toBe("total_timeout");
    await waitFor(() => ledger.settled.length === 2);
    expect(ledger.settled.map(({ outcome }) => outcome)).toEqual(["expired", "expired"]);
  });
});

describe("a static endpoint", () => {
  const endpoint = (id: string) => replica(`${id}/m`, { target: { kind: "endpoint", epoch: null, model: "its-name" } });

  it("gets the operator's key, its own name for the model, and no signature", async () => {
    const { ask, exchange } = await bench({ replicas: [endpoint("keyed")] });
    ask();
    const { request, bodyText } = await exchange(0);
    expect(request.headers["authorization"]).toBe("Bearer operator-key");
    expect(bodyText).toBe('{"model":"its-name","messages":[{"role":"user","content":"hi"}]}');
  });

  it("without a key gets no authorization at all", async () => {
    const { ask, exchange } = await bench({ replicas: [endpoint("open")] });
    ask();
    expect((await exchange(0)).request.headers).not.toHaveProperty("authorization");
  });

  it("waits for no report: a cut stream is counted for good", async () => {
    const { ask, exchange, ledger, limits } = await bench({ replicas: [endpoint("open")] });
    const { writer, done } = ask({ stream: true });
    (await exchange(0)).stream().data(delta("a"), delta("b"));
    writer.leave();
    await done;
    expect(ledger.settled[0]?.attempts).toMatchObject([{ awaitReport: false, exactness: "counted" }]);
    expect(limits.settled).toMatchObject([{ completionTokens: 2 }]);
  });
});
