import { describe, expect, it } from "vitest";
import { PoolAdmission, type AdmissionDecision, type AdmissionEvent } from "../../edge/admission/pool-admission.ts";
import { DEFAULT_ADMISSION_SETTINGS } from "../../edge/admission/settings.ts";
import type { ClaimResult, ReplicaDigest } from "../../edge/ports/coordinator.ts";
import { promptPrefix } from "../../edge/routing/prompt-prefix.ts";
import { replica } from "../support/dispatch-bench.ts";
import { seeded } from "../support/pool-simulation.ts";

const EVENTS = 100_000;
const RESULTS: readonly ClaimResult[] = [
  "answered",
  "answered",
  "answered",
  "refused",
  "failed",
  "back_pressure",
  "cancelled",
];

describe("100,000 random events in one pool", () => {
  it("end with no lease, no place and no reservation left, and every admit has had exactly one end", () => {
    const random = seeded(42);
    const below = (count: number): number => Math.floor(random() * count);
    const pool = new PoolAdmission("m", {
      ...DEFAULT_ADMISSION_SETTINGS,
      failureThreshold: 3,
      prefix: { ...DEFAULT_ADMISSION_SETTINGS.prefix, maxNodes: 500 },
    });
    const waiting = new Set<string>();
    const held = new Map<string, string>();
    const slots = new Map<string, number>();
    let ends = 0;
    let made = 0;
    let hedges = 0;
    let nowMs = 0;
    const faults: string[] = [];
    const take = (decisions: readonly AdmissionDecision[]): void => {
      for (const decision of decisions) {
        if (!waiting.delete(decision.requestId)) faults.push(`a second end of ${decision.requestId}`);
        ends++;
        if (decision.kind === "refused" && !(decision.retryAfterSeconds >= 1 && decision.retryAfterSeconds <= 60))
          faults.push(`Retry-After ${decision.retryAfterSeconds}`);
        if (decision.kind === "granted") held.set(decision.claimId, decision.target.key);
      }
    };
    const handle = (event: AdmissionEvent): void => take(pool.handle(event, nowMs));
    const fleet = (): ReplicaDigest[] =>
      ["a/r", "b/r", "c/r", "d/r"].flatMap((key) => {
        if (random() < 0.15) return [];
        slots.set(key, 1 + below(8));
        return replica(key, {
          slots: slots.get(key) ?? 1,
          ready: random() < 0.9,
          draining: random() < 0.05,
          saes: random() < 0.5 ? ["x"] : [],
          contextLength: [null, 512, 4_096][below(3)] ?? null,
          lacks: random() < 0.1 ? ["tools"] : [],
          waiting: below(3),
          reportedInFlight: below(6),
          reportedInFlightOfThisEdge: below(6),
          reportedAtMs: random() < 0.8 ? 1_000_000 + nowMs : null,
          freeKvCells: below(1_000),
          totalKvCells: 1_000,
          target: { epoch: below(50) === 0 ? nowMs : 1 },
        });
      });
    handle({ kind: "update", digest: { pool: "m", replicas: fleet() }, wallNowMs: 1_000_000 });
    const prompt = "once upon a time ".repeat(100);
    for (let step = 0; step < EVENTS; step++) {
      const what = random();
      if (what < 0.4) {
        // Some are a second machine for a request that has one: at once or not at all.
        const beside = random() < 0.1 ? [...held.keys()].at(-1)?.split(".")[0] : undefined;
        const isHedge = beside !== undefined && !waiting.has(beside) && !held.has(`${beside}.2`);
        const requestId = isHedge ? beside : `r${made + 1}`;
        made++;
        if (isHedge) hedges++;
        waiting.add(requestId);
        handle({
          kind: "admit",
          wallNowMs: 1_000_000 + nowMs,
          request: {
            pool: "m",
            requestId,
            attempt: isHedge ? 2 : 1,
            hedge: isHedge,
            sloTtftMs: [null, 200, 5_000][below(3)] ?? null,
            ...(random() < 0.3 && {
              context: { expectedTokens: below(9_000), leastPromptTokens: below(5_000) },
            }),
            features: random() < 0.1 ? ["tools"] : [],
            project: `p${below(9)}`,
            band: ["interactive", "default", "bulk"][below(3)] ?? "default",
            arrivedAtMs: 1_000_000 + nowMs - below(5_000),
            capability: "chat",
            saeIds: random() < 0.2 ? ["x"] : [],
            needsSomeSae: false,
            excludedReplicas: random() < 0.1 ? ["a/r"] : [],
            bodyBytes: below(100_000),
            returning: [null, true, false][below(3)] ?? null,
            inputTokens: below(500),
            outputTokens: below(500),
            session: random() < 0.3 ? below(20) : null,
            prefix: random() < 0.5 ? promptPrefix(`${below(40)} ${prompt}`, 0, "scope") : null,
          },
        });
        if (isHedge && waiting.has(requestId)) faults.push(`the hedge of ${requestId} waits`);
      } else if (what < 0.75) {
        const [claimId] = held.keys();
        if (claimId === undefined) continue;
        held.delete(claimId);
        const result = RESULTS[below(RESULTS.length)] ?? "answered";
        const tokens =
          random() < 0.7 ? { promptTokens: below(500), cachedTokens: 0, completionTokens: below(500) } : undefined;
        handle({ kind: "settle", claimId, result, tokens });
        // Nothing is released twice.
        if (random() < 0.1) handle({ kind: "settle", claimId, result });
      } else if (what < 0.8) {
        const [requestId] = waiting;
        if (requestId !== undefined) handle({ kind: "cancel", requestId });
      } else if (what < 0.84) {
        handle({ kind: "update", digest: { pool: "m", replicas: fleet() }, wallNowMs: 1_000_000 + nowMs });
      } else {
        nowMs += below(400);
        handle({ kind: "renew", claimIds: [...held.keys()] });
        handle({ kind: "tick" });
      }
      const stats = pool.stats(nowMs);
      if (stats.inFlight > held.size || !(stats.saturation >= 0)) faults.push(`in flight ${stats.inFlight}`);
      if (faults.length > 0) break;
    }
    expect(faults).toEqual([]);
    expect(made).toBeGreaterThan(30_000);
    expect(hedges).toBeGreaterThan(100);
    // From here on nobody comes; whoever is served is settled, and some are lost without a word.
    for (let round = 0; round < 10_000 && (waiting.size > 0 || held.size > 0); round++) {
      const [claimId] = held.keys();
      if (claimId !== undefined) {
        held.delete(claimId);
        if (random() < 0.9) handle({ kind: "settle", claimId, result: "answered" });
      }
      nowMs = Math.max(nowMs, pool.nextTimerAtMs(nowMs) ?? nowMs);
      handle({ kind: "tick" });
    }
    nowMs += 400_000;
    handle({ kind: "tick" });
    expect(waiting.size).toBe(0);
    expect(ends).toBe(made);
    expect(pool.stats(nowMs)).toMatchObject({
      inFlight: 0,
      queueDepthByBand: { interactive: 0, default: 0, bulk: 0 },
      queueBytesByBand: { interactive: 0, default: 0, bulk: 0 },
    });
    expect(pool.nextTimerAtMs(nowMs)).toBeNull();
    handle({ kind: "update", digest: { pool: "m", replicas: [] }, wallNowMs: 1_000_000 + nowMs });
    expect(pool.idle).toBe(true);
  });
});
