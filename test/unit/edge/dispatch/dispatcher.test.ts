import { describe, expect, it } from "vitest";
import { inferenceClaimsSchema } from "../../../../shared/protocol/inference-token.ts";
import { DEFAULT_DISPATCH_POLICY } from "../../../../edge/dispatch/settings.ts";
import { errorOf, manualBench as bench, replica } from "../../../support/dispatch-bench.ts";
import { inferenceRequest, RecordingWriter } from "../../../support/dispatch-fakes.ts";
import { delta, finish, usageChunk } from "../../../support/scripted-exchange.ts";
import { waitFor } from "../../../support/scripted-upstream.ts";

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
    expect(metrics.ended).toMatchObject([
      { model: "m", outcome: "completed", ttftMs: 10, tpotMs: 15, attempts: [{ replica: "gpu/r1", end: "answered" }] },
    ]);
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

  it("lets a host know that the caller is strict", async () => {
    const { dispatcher, clock, exchange } = await bench();
    const request = inferenceRequest({}, { strict: "true", receivedAtMs: clock.nowMs() });
    void dispatcher.run(request, new RecordingWriter());
    expect((await exchange(0)).request.headers["x-steerage-strict"]).toBe("true");
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
    const { ask, exchange, clock } = await bench({
      settings: { policyOf: () => ({ ...DEFAULT_DISPATCH_POLICY, retries: 0 }) },
    });
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
    expect((await coordinator.stats())[0]?.queueDepthByBand).toMatchObject({ default: 0 });
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
