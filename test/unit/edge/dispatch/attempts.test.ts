import { describe, expect, it } from "vitest";
import { ApiError } from "../../../../shared/errors/api-error.ts";
import { DispatchMemory } from "../../../../edge/dispatch/dispatch-memory.ts";
import { errorOf, manualBench as bench, replica } from "../../../support/dispatch-bench.ts";
import { inferenceRequest, RecordingLimits, RecordingWriter } from "../../../support/dispatch-fakes.ts";
import { delta, finish, usageChunk, type FakeExchange } from "../../../support/scripted-exchange.ts";
import { waitFor } from "../../../support/scripted-upstream.ts";

const endpoint = (id: string) => replica(`${id}/m`, { target: { kind: "endpoint", epoch: null, model: "its-name" } });

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

  it("is not made any more once they are more than a tenth of the requests, ten aside", async () => {
    const { ask, upstream } = await bench({ replicas: two, admission: { failureThreshold: 1_000 } });
    const attempts: number[] = [];
    for (let turn = 0; turn < 23; turn++) {
      const before = upstream.exchanges.length;
      const state = { over: false };
      const ended = ask({}, { requestId: `r${turn}` }).done.then(() => (state.over = true));
      let failed = before;
      while (!state.over) {
        for (; failed < upstream.exchanges.length; failed++) upstream.exchanges[failed]?.fail("unreachable");
        await new Promise((resolve) => setImmediate(resolve));
      }
      await ended;
      attempts.push(upstream.exchanges.length - before);
    }
    // Ten saved, and each request earns a tenth of one.
    expect(attempts.reduce((sum, count) => sum + count, 0)).toBe(23 + 12);
    expect(attempts.slice(0, 5)).toEqual([2, 2, 2, 2, 2]);
    expect(attempts.at(-1)).toBe(1);
  });

  it("is bounded together with those of other dispatchers that share its memory, as on Workers", async () => {
    const memory = new DispatchMemory();
    let calls = 0;
    for (let turn = 0; turn < 12; turn++) {
      const { ask, exchange, upstream } = await bench({ replicas: two, memory });
      const { done } = ask();
      (await exchange(0)).fail("closed_before_headers");
      const state = { over: false };
      const ended = done.then(() => (state.over = true));
      while (!state.over && upstream.exchanges.length < 2) await new Promise((resolve) => setImmediate(resolve));
      upstream.exchanges[1]?.fail("closed_before_headers");
      await ended;
      calls += upstream.exchanges.length;
    }
    // Ten saved, and each request earns a tenth of one.
    expect(calls).toBe(12 + 11);
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
