import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { PoolAdmission, type AdmissionDecision } from "../../../../edge/admission/pool-admission.ts";
import {
  DEFAULT_ADMISSION_SETTINGS,
  DEFAULT_BAND,
  type AdmissionSettings,
  type BandSettings,
} from "../../../../edge/admission/settings.ts";
import type { AdmitRequest, ReplicaDigest } from "../../../../edge/ports/coordinator.ts";
import { replica } from "../../../support/dispatch-bench.ts";

const WALL = 1_000_000;

function admission(replicas: readonly ReplicaDigest[], settings: Partial<AdmissionSettings> = {}) {
  const pool = new PoolAdmission("m", { ...DEFAULT_ADMISSION_SETTINGS, ...settings });
  const update = (next: readonly ReplicaDigest[], nowMs = 0) =>
    pool.handle({ kind: "update", digest: { pool: "m", replicas: next }, wallNowMs: WALL + nowMs }, nowMs);
  if (replicas.length > 0) update(replicas);
  const admit = (requestId: string, nowMs = 0, more: Partial<AdmitRequest> = {}) =>
    pool.handle(
      {
        kind: "admit",
        request: {
          pool: "m",
          requestId,
          attempt: 1,
          project: "p",
          band: "default",
          arrivedAtMs: WALL + nowMs,
          capability: "chat",
          saeIds: [],
          needsSomeSae: false,
          excludedReplicas: [],
          bodyBytes: 10,
          returning: null,
          inputTokens: 100,
          outputTokens: 100,
          session: null,
          prefix: null,
          ...more,
        },
        wallNowMs: WALL + nowMs,
      },
      nowMs,
    );
  const settle = (
    claimId: string,
    nowMs = 0,
    result: "answered" | "failed" | "back_pressure" | "cancelled" = "answered",
    busyForMs?: number,
  ) => pool.handle({ kind: "settle", claimId, result, busyForMs }, nowMs);
  const tick = (nowMs: number) => pool.handle({ kind: "tick" }, nowMs);
  return { pool, update, admit, settle, tick };
}

/** The bands of the tests, all alike unless said otherwise. */
const bands = (more: Partial<BandSettings>): Partial<AdmissionSettings> => ({
  bands: ["default", "bulk", "a", "b"].map((name) => ({ ...DEFAULT_BAND, name, ...more })),
});

const granted = (decisions: readonly AdmissionDecision[]): string[] =>
  decisions.flatMap((decision) =>
    decision.kind === "granted" ? [`${decision.requestId}@${decision.target.key}`] : [],
  );

const report = (own: number, all: number, at: number) =>
  ["a/r", "b/r"].map((key) =>
    replica(key, { slots: 4, reportedInFlight: all, reportedInFlightOfThisEdge: own, reportedAtMs: WALL + at }),
  );

describe("a pool's admission", () => {
  it("claims up to the slots, then lets requests wait in order of arrival", () => {
    const { admit, settle, pool } = admission([replica("a/r", { slots: 2 })]);
    expect(granted(admit("r1"))).toEqual(["r1@a/r"]);
    expect(granted(admit("r2"))).toEqual(["r2@a/r"]);
    expect(admit("r3")).toEqual([]);
    expect(admit("r4", 5)).toEqual([]);
    expect(pool.stats(10)).toMatchObject({
      inFlight: 2,
      queueDepthByBand: { default: 2 },
      oldestWaitMsByBand: { default: 10 },
      saturation: 2,
    });
    expect(granted(settle("r1.1", 20))).toEqual(["r3@a/r"]);
    expect(granted(settle("r2.1", 30))).toEqual(["r4@a/r"]);
  });

  it("gives a request that comes again its old place by its first arrival", () => {
    const { admit, settle } = admission([replica("a/r", { slots: 1 })]);
    admit("r1", 0);
    admit("later", 50);
    admit("retried", 60, { arrivedAtMs: WALL + 10, attempt: 2 });
    expect(granted(settle("r1.1", 70))).toEqual(["retried@a/r"]);
  });

  it("gives an attempt that comes again its claim again, and holds one", () => {
    const { admit, pool } = admission([replica("a/r", { slots: 1 })]);
    admit("r1");
    expect(granted(admit("r1", 1))).toEqual(["r1@a/r"]);
    expect(pool.stats(1).inFlight).toBe(1);
  });

  it("does not let a request that no free machine can serve hold up others", () => {
    const { admit } = admission([replica("sae/r", { slots: 1, saes: ["x"] }), replica("b/r", { slots: 1 })]);
    expect(granted(admit("r1", 0, { saeIds: ["x"] }))).toEqual(["r1@sae/r"]);
    expect(admit("r2", 1, { saeIds: ["x"] })).toEqual([]);
    expect(granted(admit("r3", 2))).toEqual(["r3@b/r"]);
  });

  it("releases a claim once; a second release and an unknown one change nothing", () => {
    const { admit, settle, pool } = admission([replica("a/r", { slots: 1 })]);
    admit("r1");
    settle("r1.1", 1);
    admit("r2", 2);
    settle("r1.1", 3);
    settle("nobody.1", 3);
    expect(pool.stats(3).inFlight).toBe(1);
    expect(admit("r3", 4)).toEqual([]);
  });

  it("refuses what does not fit the queue, by count and by bytes, with a wait computed from the drain rate", () => {
    const { admit, settle } = admission(
      [replica("a/r", { slots: 1 })],
      bands({ queueCapacityRequests: 2, queueCapacityBytes: 100 }),
    );
    for (let place = 0; place < 4; place++) {
      admit(`s${place}`, place * 3_000);
      settle(`s${place}.1`, (place + 1) * 3_000);
    }
    admit("r1", 12_000);
    admit("r2", 12_000, { bodyBytes: 60 });
    admit("r3", 12_000);
    expect(admit("big", 12_000, { bodyBytes: 41 })).toEqual([
      { kind: "refused", requestId: "big", code: "queue_full", retryAfterSeconds: 6 },
    ]);
    expect(admit("r4", 12_000)).toEqual([
      { kind: "refused", requestId: "r4", code: "queue_full", retryAfterSeconds: 10 },
    ]);
  });

  it("counts each band's queue apart", () => {
    const { admit } = admission([replica("a/r", { slots: 1 })], bands({ queueCapacityRequests: 1 }));
    admit("r1");
    admit("r2");
    expect(admit("r3")).toMatchObject([{ kind: "refused" }]);
    expect(admit("r4", 0, { band: "bulk" })).toEqual([]);
  });

  it("lets nobody wait longer than the limit: one minute with a machine, ten seconds without any", () => {
    const busy = admission([replica("a/r", { slots: 1 })]);
    busy.admit("r1");
    busy.admit("r2", 10);
    expect(busy.pool.nextTimerAtMs(10)).toBe(30_000);
    busy.pool.handle({ kind: "renew", claimIds: ["r1.1"] }, 29_000);
    busy.pool.handle({ kind: "renew", claimIds: ["r1.1"] }, 58_000);
    expect(busy.pool.nextTimerAtMs(58_000)).toBe(60_010);
    expect(busy.tick(60_010)).toMatchObject([{ kind: "refused", requestId: "r2", code: "queue_timeout" }]);

    const none = admission([replica("a/r", { ready: false })]);
    expect(none.admit("r1", 100)).toEqual([]);
    expect(none.pool.nextTimerAtMs(100)).toBe(10_100);
    expect(none.tick(10_100)).toEqual([
      { kind: "refused", requestId: "r1", code: "no_replica_available", retryAfterSeconds: 10 },
    ]);
  });

  it("serves who waited for a machine as soon as one is ready", () => {
    const { admit, update } = admission([]);
    admit("r1", 0);
    expect(granted(update([replica("a/r")], 5_000))).toEqual(["r1@a/r"]);
  });

  it("releases a claim that nobody renews, and serves the next with it", () => {
    const { admit, tick, pool } = admission([replica("a/r", { slots: 1 })]);
    admit("r1");
    admit("r2");
    pool.handle({ kind: "renew", claimIds: ["r1.1", "unknown.1"] }, 20_000);
    expect(granted(tick(30_000))).toEqual([]);
    expect(granted(tick(50_000))).toEqual(["r2@a/r"]);
  });

  it("takes a waiting request out when it is cancelled, and knows no other", () => {
    const { admit, pool, settle } = admission([replica("a/r", { slots: 1 })]);
    admit("r1");
    admit("r2");
    expect(pool.handle({ kind: "cancel", requestId: "r2" }, 1)).toEqual([{ kind: "cancelled", requestId: "r2" }]);
    expect(pool.handle({ kind: "cancel", requestId: "r1" }, 1)).toEqual([]);
    expect(settle("r1.1", 2)).toEqual([]);
  });

  it("corrects a report by what it holds itself, so that reports cause no herd", () => {
    const { admit, update } = admission([]);
    update(report(0, 0, 0));
    const first = ["r1", "r2", "r3", "r4"].flatMap((id) => granted(admit(id)));
    expect(first.filter((at) => at.endsWith("a/r"))).toHaveLength(2);
    // The next report has already counted ours: they are not counted twice.
    update(report(2, 2, 100), 100);
    expect(["r5", "r6", "r7", "r8"].flatMap((id) => granted(admit(id, 100)))).toHaveLength(4);
    expect(admit("r9", 100)).toEqual([]);
  });

  it("leaves slots that other edges use alone", () => {
    const { admit } = admission([
      replica("a/r", { slots: 2, reportedInFlight: 1, reportedInFlightOfThisEdge: 0, reportedAtMs: WALL }),
    ]);
    expect(granted(admit("r1"))).toHaveLength(1);
    expect(admit("r2")).toEqual([]);
  });

  it("waits for a busy machine as long as that asked for, and wakes by itself", () => {
    const { admit, settle, pool, tick } = admission([replica("a/r")]);
    admit("r1");
    settle("r1.1", 0, "back_pressure", 4_000);
    expect(admit("r2", 10)).toEqual([]);
    expect(pool.nextTimerAtMs(10)).toBe(4_000);
    expect(granted(tick(4_000))).toEqual(["r2@a/r"]);
  });

  it("ejects a machine after consecutive failures, one success forgives, and the last one is never ejected", () => {
    const { admit, settle } = admission([replica("a/r", { weight: 9 }), replica("b/r", { priority: 1 })], {
      failureThreshold: 2,
    });
    let place = 0;
    const ask = (nowMs: number, result: "answered" | "failed" | "cancelled"): string => {
      const id = `r${++place}`;
      const [where = ""] = granted(admit(id, nowMs));
      settle(`${id}.1`, nowMs, result);
      return where.split("@")[1] ?? "";
    };
    expect([ask(0, "failed"), ask(0, "answered"), ask(0, "failed"), ask(0, "cancelled"), ask(0, "failed")]).toEqual(
      Array(5).fill("a/r"),
    );
    expect(ask(1, "answered")).toBe("b/r");
    expect(ask(30_000, "failed")).toBe("a/r");
    expect(ask(30_001, "failed")).toBe("b/r");
    expect(ask(30_001, "failed")).toBe("b/r");
    // Now both are out, so both are in.
    expect(ask(30_002, "answered")).toBe("a/r");
  });

  it("refuses at once when whatever could serve was tried", () => {
    const { admit, settle } = admission([replica("a/r")]);
    admit("r1");
    settle("r1.1", 0, "back_pressure", 7_000);
    expect(admit("r1", 1, { attempt: 2, excludedReplicas: ["a/r"] })).toEqual([
      { kind: "refused", requestId: "r1", code: "no_replica_available", retryAfterSeconds: 7 },
    ]);
  });

  it("keeps the claims of a machine that the fleet forgot until they end", () => {
    const { admit, update, settle, pool } = admission([replica("a/r")]);
    admit("r1");
    update([]);
    expect(pool.idle).toBe(false);
    expect(admit("r2")).toEqual([]);
    settle("r1.1");
    pool.handle({ kind: "cancel", requestId: "r2" }, 0);
    expect(pool.idle).toBe(true);
  });

  it("holds for any course of events: claims within slots, every admit one end, nothing negative", () => {
    const event = fc.oneof(
      {
        weight: 5,
        arbitrary: fc.record({
          kind: fc.constant("admit" as const),
          band: fc.constantFrom("a", "b"),
          sae: fc.boolean(),
          bytes: fc.nat(40),
        }),
      },
      {
        weight: 4,
        arbitrary: fc.record({
          kind: fc.constant("settle" as const),
          nth: fc.nat(9),
          result: fc.constantFrom(
            "answered" as const,
            "failed" as const,
            "back_pressure" as const,
            "cancelled" as const,
          ),
        }),
      },
      { weight: 1, arbitrary: fc.record({ kind: fc.constant("cancel" as const), nth: fc.nat(9) }) },
      {
        weight: 1,
        arbitrary: fc.record({
          kind: fc.constant("update" as const),
          replicas: fc.uniqueArray(
            fc.record({
              key: fc.constantFrom("a/r", "b/r", "c/r"),
              slots: fc.nat(3),
              ready: fc.boolean(),
              sae: fc.boolean(),
              others: fc.nat(2),
            }),
            { selector: ({ key }) => key },
          ),
        }),
      },
      { weight: 2, arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.nat(20_000) }) },
    );
    fc.assert(
      fc.property(fc.array(event, { maxLength: 80 }), (events) => {
        const { pool, admit, settle, update, tick } = admission([], {
          ...bands({ queueCapacityRequests: 4, queueCapacityBytes: 100 }),
          failureThreshold: 2,
        });
        let nowMs = 0;
        let made = 0;
        const waiting = new Set<string>();
        const held = new Map<string, string>();
        const ends = new Map<string, number>();
        const slots = new Map<string, number>();
        const take = (decisions: readonly AdmissionDecision[]): void => {
          for (const decision of decisions) {
            expect(waiting.delete(decision.requestId)).toBe(true);
            ends.set(decision.requestId, (ends.get(decision.requestId) ?? 0) + 1);
            if (decision.kind !== "granted") continue;
            held.set(decision.claimId, decision.target.key);
            const own = [...held.values()].filter((key) => key === decision.target.key).length;
            expect(own).toBeLessThanOrEqual(slots.get(decision.target.key) ?? 0);
          }
        };
        for (const step of events) {
          // Claims are renewed all the time, as the relay does.
          pool.handle({ kind: "renew", claimIds: [...held.keys()] }, nowMs);
          if (step.kind === "admit") {
            const id = `r${++made}`;
            waiting.add(id);
            take(admit(id, nowMs, { band: step.band, saeIds: step.sae ? ["x"] : [], bodyBytes: step.bytes }));
          } else if (step.kind === "settle") {
            const claimId = [...held.keys()][step.nth];
            if (claimId === undefined) continue;
            held.delete(claimId);
            take(settle(claimId, nowMs, step.result));
          } else if (step.kind === "cancel") {
            const id = [...waiting][step.nth];
            if (id !== undefined) take(pool.handle({ kind: "cancel", requestId: id }, nowMs));
          } else if (step.kind === "update") {
            for (const { key, slots: count } of step.replicas) slots.set(key, count);
            take(
              update(
                step.replicas.map(({ key, ready, sae, others, slots: count }) =>
                  replica(key, {
                    slots: count,
                    ready,
                    saes: sae ? ["x"] : [],
                    reportedInFlight: others,
                    reportedInFlightOfThisEdge: 0,
                    reportedAtMs: WALL + nowMs,
                  }),
                ),
                nowMs,
              ),
            );
          } else {
            nowMs += step.ms;
            pool.handle({ kind: "renew", claimIds: [...held.keys()] }, nowMs - step.ms);
            take(tick(nowMs));
            for (const claimId of held.keys()) pool.handle({ kind: "renew", claimIds: [claimId] }, nowMs);
          }
          const stats = pool.stats(nowMs);
          expect(stats.inFlight).toBe(held.size);
          expect(stats.saturation).toBeGreaterThanOrEqual(0);
          const depth = Object.values(stats.queueDepthByBand);
          expect(depth.reduce((sum, count) => sum + count, 0)).toBe(waiting.size);
          expect(depth.every((count) => count >= 0 && count <= 4)).toBe(true);
        }
        // With time alone everybody who waits gets an end.
        const settleAll = (): void => {
          // Each release may grant the next claim.
          for (const claimId of held.keys()) {
            held.delete(claimId);
            take(settle(claimId, nowMs, "answered"));
          }
        };
        settleAll();
        for (let round = 0; waiting.size > 0 && round < 200; round++) {
          const next = pool.nextTimerAtMs(nowMs);
          expect(next).not.toBeNull();
          nowMs = Math.max(nowMs, next ?? nowMs);
          take(tick(nowMs));
          settleAll();
        }
        expect(waiting.size).toBe(0);
        expect([...ends.values()].every((count) => count === 1)).toBe(true);
        expect(ends.size).toBe(made);
        expect(pool.stats(nowMs)).toMatchObject({ inFlight: 0, queueDepthByBand: {} });
      }),
      { numRuns: 300 },
    );
  });
});
