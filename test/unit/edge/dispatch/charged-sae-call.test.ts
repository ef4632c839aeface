import { describe, expect, it } from "vitest";
import { chargedSaeCall } from "../../../../edge/dispatch/charged-sae-call.ts";
import type { SaeCall } from "../../../../edge/dispatch/sae-calls.ts";
import { DEFAULT_DISPATCH_SETTINGS } from "../../../../edge/dispatch/settings.ts";
import type { Coordinator } from "../../../../edge/ports/coordinator.ts";
import type { UpstreamHandler, UpstreamRequest } from "../../../../edge/ports/upstream.ts";
import { MODEL, PRINCIPAL } from "../../../support/edge-deps.ts";
import { readableSigner, RecordingLedger, RecordingLimits, silentLogger } from "../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const BODY = JSON.stringify({ positive: ["sea"], negative: ["moon"] });
const PRICE = { promptPer1k: 3, cachedPer1k: 1, completionPer1k: 9 };
const RANKED = JSON.stringify({ data: [], usage: { prompt_tokens: 11, total_tokens: 11 } });

const target = {
  key: "gpu/r1",
  kind: "host",
  backend: "gpu",
  replicaId: "r1",
  url: "http://gpu",
  model: "m",
  epoch: 7,
};

function setUp(answer: { readonly status: number; readonly body: string } | null) {
  const clock = new ManualClock();
  const limits = new RecordingLimits();
  const ledger = new RecordingLedger();
  const admit: Coordinator["admit"] = () =>
    Promise.resolve(
      answer === null
        ? { kind: "refused", code: "queue_full", retryAfterSeconds: 3 }
        : {
            kind: "claimed",
            queuedMs: 0,
            claim: { claimId: "c", expiresAtMs: 1e15, target: { ...target, kind: "host" } },
          },
    );
  const done = (): Promise<void> => Promise.resolve();
  const deps = {
    clock,
    logger: silentLogger,
    limits,
    ledger,
    coordinator: { admit, settle: done, cancel: done, renew: done, update: done, stats: () => Promise.resolve([]) },
    signer: readableSigner,
    upstream: {
      open(_request: UpstreamRequest, handler: UpstreamHandler) {
        queueMicrotask(() => {
          handler.onHeaders(answer?.status ?? 500, { "content-type": "application/json" });
          handler.onData(new TextEncoder().encode(answer?.body ?? ""));
          handler.onEnd();
        });
        return { sent: true, resume: () => undefined, abort: () => undefined };
      },
      close: done,
    },
    settings: {
      ...DEFAULT_DISPATCH_SETTINGS,
      priceOf: () => ({ price: PRICE, priceVersion: 4 }),
      endpointKey: () => null,
    },
  };
  const call: SaeCall = {
    requestId: "req_1",
    clientRequestId: "mine",
    principal: PRINCIPAL,
    band: "default",
    model: MODEL,
    saeId: "sae-1",
    method: "POST",
    path: "/v1/saes/sae-1/features/rank",
    bodyText: BODY,
    receivedAtMs: clock.nowMs(),
    gone: new AbortController().signal,
  };
  const ask = (over: Partial<SaeCall> = {}) => chargedSaeCall(deps, { ...call, ...over });
  return { limits, ledger, ask };
}

describe("a ranking", () => {
  it("reserves its texts, and is billed the tokens that its answer tells, in a row that its host has to prove", async () => {
    const { limits, ledger, ask } = setUp({ status: 200, body: RANKED });
    await ask();
    expect(limits.reserved).toMatchObject([
      {
        account: "acme",
        model: MODEL.id,
        inputTokensEstimate: Math.ceil(BODY.length / 4),
        outputTokensLimit: 0,
        costBoundNanoUsd: String((BODY.length + 64) * 3),
        scopes: [{ id: "key:goodgoodgood" }, { id: "project:search" }, { id: "account:acme" }],
      },
    ]);
    expect(limits.settled).toEqual([
      { account: "acme", reservationId: "req_1", totalTokens: 11, completionTokens: 0, costNanoUsd: "33" },
    ]);
    expect(ledger.opened).toMatchObject([{ requestId: "req_1", model: MODEL.id, price: PRICE, priceVersion: 4 }]);
    expect(ledger.started).toEqual([{ requestId: "req_1", attempt: 1, backend: "gpu", replica: "r1", epoch: 7 }]);
    expect(ledger.settled).toMatchObject([
      {
        outcome: "completed",
        backend: "gpu",
        attempts: [{ counts: { promptTokens: 11, cachedTokens: 0, completionTokens: 0 }, unbilledReason: null }],
      },
    ]);
  });

  it("that is refused by a limit reaches no engine and leaves a row of zeros", async () => {
    const { limits, ledger, ask } = setUp({ status: 200, body: RANKED });
    limits.refusal = RecordingLimits.refusing("insufficient_quota");
    await expect(ask()).rejects.toMatchObject({ code: "insufficient_quota", retryAfterSeconds: 7 });
    expect([ledger.shedRequests.length, ledger.opened.length, limits.settled.length]).toEqual([1, 0, 0]);
  });

  it("that finds no place gives everything back and leaves a row of zeros", async () => {
    const { limits, ledger, ask } = setUp(null);
    await expect(ask()).rejects.toMatchObject({ code: "queue_full" });
    expect(ledger.shedRequests).toHaveLength(1);
    expect(limits.settled).toMatchObject([{ totalTokens: 0, costNanoUsd: "0" }]);
  });

  it("that the engine refuses for the caller's fault does not count, and one that fails costs nothing", async () => {
    const wrong = setUp({ status: 400, body: "{}" });
    expect((await wrong.ask()).status).toBe(400);
    expect(wrong.limits.settled).toMatchObject([{ totalTokens: 0, uncounted: true }]);
    expect(wrong.ledger.settled).toMatchObject([
      { outcome: "failed", attempts: [{ unbilledReason: "failed_before_first_token" }] },
    ]);
    const broken = setUp({ status: 500, body: "{}" });
    await expect(broken.ask()).rejects.toMatchObject({ code: "upstream_error" });
    expect(broken.limits.settled).toEqual([
      { account: "acme", reservationId: "req_1", totalTokens: 0, completionTokens: 0, costNanoUsd: "0" },
    ]);
    expect(broken.ledger.settled).toMatchObject([{ outcome: "failed" }]);
  });

  it("is not begun when the ledger cannot take its row", async () => {
    const { limits, ledger, ask } = setUp({ status: 200, body: RANKED });
    ledger.openFails = new Error("full");
    await expect(ask()).rejects.toThrow("full");
    expect([ledger.started.length, limits.settled.length]).toEqual([0, 1]);
  });
});

describe("a look at an SAE", () => {
  it("counts as a request, and costs no tokens and no row", async () => {
    const { limits, ledger, ask } = setUp({ status: 200, body: RANKED });
    await ask({ method: "GET", path: "/v1/saes/sae-1", bodyText: "" });
    expect(limits.reserved).toMatchObject([{ inputTokensEstimate: 0, outputTokensLimit: 0, costBoundNanoUsd: "0" }]);
    expect(limits.settled).toMatchObject([{ totalTokens: 0, costNanoUsd: "0" }]);
    expect([ledger.opened.length, ledger.settled.length, ledger.shedRequests.length]).toEqual([0, 0, 0]);
  });
});
