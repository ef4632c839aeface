import { describe, expect, it } from "vitest";
import { callSae, type SaeCall } from "../../../../edge/dispatch/sae-calls.ts";
import { DEFAULT_DISPATCH_SETTINGS } from "../../../../edge/dispatch/settings.ts";
import type { AdmitDecision, AdmitRequest, Coordinator, SettleRequest } from "../../../../edge/ports/coordinator.ts";
import type { UpstreamHandler, UpstreamRequest } from "../../../../edge/ports/upstream.ts";
import { MODEL, PRINCIPAL } from "../../../support/edge-deps.ts";
import { silentLogger } from "../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const CLAIMED: AdmitDecision = {
  kind: "claimed",
  queuedMs: 0,
  claim: {
    claimId: "c1",
    expiresAtMs: 1e15,
    target: {
      key: "host/r1",
      kind: "host",
      backend: "host",
      replicaId: "r1",
      url: "http://host:1/",
      model: "m",
      epoch: 1,
    },
  },
};

function setUp(decision: AdmitDecision = CLAIMED) {
  const admitted: AdmitRequest[] = [];
  const settled: SettleRequest[] = [];
  const sent: UpstreamRequest[] = [];
  const signed: unknown[] = [];
  const handlers: UpstreamHandler[] = [];
  const state = { aborted: 0 };
  const clock = new ManualClock();
  const left = new AbortController();
  const coordinator: Coordinator = {
    admit: (request) => {
      admitted.push(request);
      return Promise.resolve(decision);
    },
    settle: (request) => {
      settled.push(request);
      return Promise.resolve();
    },
    cancel: () => Promise.resolve(),
    renew: () => Promise.resolve(),
    update: () => Promise.resolve(),
    stats: () => Promise.resolve([]),
  };
  const deps = {
    clock,
    logger: silentLogger,
    coordinator,
    signer: {
      edge: "edge",
      sign: (claims: unknown) => {
        signed.push(claims);
        return Promise.resolve("token");
      },
      publicKeys: () => [],
    },
    upstream: {
      open: (request: UpstreamRequest, handler: UpstreamHandler) => {
        sent.push(request);
        handlers.push(handler);
        return { sent: true, resume: () => undefined, abort: () => void (state.aborted += 1) };
      },
      close: () => Promise.resolve(),
    },
    settings: {
      ...DEFAULT_DISPATCH_SETTINGS,
      priceOf: () => ({ price: { promptPer1k: 0, completionPer1k: 0, cachedPer1k: 0 }, priceVersion: 0 }),
      endpointKey: () => null,
    },
  };
  const call: SaeCall = {
    requestId: "req_1",
    clientRequestId: null,
    principal: PRINCIPAL,
    band: "default",
    model: MODEL,
    saeId: "sae-1",
    method: "GET",
    path: "/v1/saes/sae-1/features?q=sea",
    bodyText: "",
    receivedAtMs: 0,
    gone: left.signal,
  };
  const run = async (over: Partial<SaeCall> = {}) => {
    const answer = callSae(deps, { ...call, ...over }, () => undefined);
    answer.catch(() => undefined);
    while (handlers.length === 0 && settled.length === 0 && decision.kind === "claimed") {
      await new Promise((resolve) => setImmediate(resolve));
    }
    return { answer };
  };
  return { admitted, settled, sent, signed, handlers, state, clock, left, run };
}

const answered = (handler: UpstreamHandler | undefined, status: number, text = "{}") => {
  handler?.onHeaders(status, { "content-type": "application/json", "set-cookie": "no" });
  handler?.onData(new TextEncoder().encode(text));
  handler?.onEnd();
};

describe("a question about an SAE", () => {
  it("takes no place when its caller left before it could be asked", async () => {
    const { admitted, left, run } = setUp({ kind: "cancelled" });
    left.abort();
    await expect((await run()).answer).rejects.toMatchObject({ code: "client_closed_request" });
    expect(admitted).toEqual([]);
  });

  it("goes signed, with its query, to a replica that holds the SAE, and gives the claim back", async () => {
    const { admitted, settled, sent, signed, handlers, run } = setUp();
    const { answer } = await run();
    answered(handlers[0], 200, '{"a":1}');
    const { status, headers, body } = await answer;
    expect([status, new TextDecoder().decode(body)]).toEqual([200, '{"a":1}']);
    expect(headers).toEqual({ "content-type": "application/json" });
    expect(admitted).toMatchObject([{ pool: MODEL.pool, saeIds: ["sae-1"], capability: "steering", attempt: 1 }]);
    expect(signed).toMatchObject([
      { aud: "host", jti: "req_1.1", method: "GET", path: "/v1/saes/sae-1/features?q=sea", replica: "r1" },
    ]);
    expect(sent).toMatchObject([{ url: "http://host:1/v1/saes/sae-1/features?q=sea", method: "GET", body: null }]);
    expect(settled).toMatchObject([{ claimId: "c1", result: "answered" }]);
  });

  it.each([
    [404, "refused"],
    [503, "back_pressure"],
  ])("hands on the answer %i and settles it as %s", async (status, result) => {
    const { settled, handlers, run } = setUp();
    const { answer } = await run();
    answered(handlers[0], status);
    expect((await answer).status).toBe(status);
    expect(settled).toMatchObject([{ result }]);
  });

  it.each([401, 500])("does not hand on what is between us and the machine: %i", async (status) => {
    const { settled, handlers, run } = setUp();
    const { answer } = await run();
    answered(handlers[0], status);
    await expect(answer).rejects.toMatchObject({ code: "upstream_error" });
    expect(settled).toMatchObject([{ result: "failed" }]);
  });

  it("fails as a machine that cannot be reached, or that says nothing in time", async () => {
    const lost = setUp();
    const one = await lost.run();
    lost.handlers[0]?.onFailure("unreachable", new Error("refused"));
    await expect(one.answer).rejects.toMatchObject({ code: "no_replica_available" });
    expect(lost.settled).toMatchObject([{ result: "failed" }]);
    const silent = setUp();
    const other = await silent.run();
    silent.clock.advance(DEFAULT_DISPATCH_SETTINGS.timeouts.responseHeaderMs);
    await expect(other.answer).rejects.toMatchObject({ code: "response_header_timeout" });
    expect(silent.state.aborted).toBe(1);
  });

  it("is given up when the caller leaves", async () => {
    const { settled, state, left, run } = setUp();
    const { answer } = await run();
    left.abort();
    await expect(answer).rejects.toMatchObject({ code: "upstream_error" });
    expect(state.aborted).toBe(1);
    expect(settled).toMatchObject([{ result: "cancelled" }]);
  });

  it("is refused as admission says", async () => {
    const full = await setUp({ kind: "refused", code: "queue_full", retryAfterSeconds: 3 }).run();
    await expect(full.answer).rejects.toMatchObject({ code: "queue_full", retryAfterSeconds: 3 });
    const none = await setUp({ kind: "sae_not_available", available: [] }).run();
    await expect(none.answer).rejects.toMatchObject({ code: "sae_not_found" });
  });
});
