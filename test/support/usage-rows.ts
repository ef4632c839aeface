import type { EndedRequest } from "../../shared/protocol/report.ts";
import type { EndedAttempt, OpenedRequest, SettledRequest } from "../../edge/ports/ledger.ts";
import type { AttemptRow, HostCounterRow, UsageBatch, UsageRow } from "../../edge/ports/usage-store.ts";

/** 2026-01-01T00:00:00Z, the manual clock's start. */
export const START_MS = Date.UTC(2026, 0, 1);
export const HOUR_MS = 3_600_000;

export function usageRow(requestId: string, more: Partial<UsageRow> = {}): UsageRow {
  return {
    requestId,
    clientRequestId: null,
    atMs: START_MS,
    settledAtMs: START_MS + 1_000,
    account: "acme",
    project: "p1",
    keyId: "k1",
    model: "demo",
    backend: "gpu-1",
    band: "default",
    promptTokens: 10,
    cachedTokens: 4,
    completionTokens: 20,
    steeringHash: null,
    outcome: "completed",
    exactness: "exact",
    price: { promptPer1k: 100, cachedPer1k: 10, completionPer1k: 1_000 },
    priceVersion: 1,
    costNanoUsd: "20640",
    queueMs: 0,
    ttftMs: 12,
    tpotMs: 3.25,
    totalMs: 80,
    ...more,
  };
}

export function attemptRow(requestId: string, more: Partial<AttemptRow> = {}): AttemptRow {
  return {
    requestId,
    attempt: 1,
    backend: "gpu-1",
    replica: "r1",
    epoch: 7,
    endedHourMs: START_MS,
    computedPrompt: 6,
    cachedPrompt: 4,
    computedCompletion: 20,
    unbilledReason: null,
    exactness: "exact",
    ...more,
  };
}

export function counterRow(more: Partial<HostCounterRow> = {}): HostCounterRow {
  return {
    host: "gpu-1",
    edge: "edge",
    epoch: 7,
    hourMs: START_MS,
    requests: 1,
    computedPrompt: 6,
    cachedPrompt: 4,
    computedCompletion: 20,
    ...more,
  };
}

export function batchOf(parts: Partial<UsageBatch>): UsageBatch {
  return { usage: [], attempts: [], counters: [], lateReports: [], ...parts };
}

export function opened(requestId: string, more: Partial<OpenedRequest> = {}): OpenedRequest {
  return {
    requestId,
    clientRequestId: null,
    atMs: START_MS,
    account: "acme",
    project: "p1",
    keyId: "k1",
    model: "demo",
    band: "default",
    price: { promptPer1k: 100, cachedPer1k: 10, completionPer1k: 1_000 },
    priceVersion: 1,
    ...more,
  };
}

export function endedAttempt(requestId: string, more: Partial<EndedAttempt> = {}): EndedAttempt {
  return {
    requestId,
    attempt: 1,
    counts: { promptTokens: 10, cachedTokens: 4, completionTokens: 20 },
    exactness: "exact",
    unbilledReason: null,
    awaitReport: false,
    ...more,
  };
}

export function settledRequest(requestId: string, more: Partial<SettledRequest> = {}): SettledRequest {
  return {
    requestId,
    outcome: "completed",
    attempts: [endedAttempt(requestId)],
    backend: "gpu-1",
    steeringHash: null,
    queueMs: 0,
    ttftMs: 12.4,
    tpotMs: 3.25,
    totalMs: 80.2,
    ...more,
  };
}

export function endedRequest(requestId: string, more: Partial<EndedRequest> = {}): EndedRequest {
  return {
    request_id: requestId,
    attempt: 1,
    edge: "edge",
    replica: "r1",
    epoch: 7,
    ended_at: START_MS + 500,
    computed_prompt: 6,
    cached_prompt: 4,
    computed_completion: 20,
    outcome: "completed",
    exactness: "exact",
    ...more,
  };
}
