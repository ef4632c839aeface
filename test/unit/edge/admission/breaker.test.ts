import { describe, expect, it } from "vitest";
import { Breaker } from "../../../../edge/admission/breaker.ts";
import { replica } from "../../../support/dispatch-bench.ts";
import { PoolSimulation } from "../../../support/pool-simulation.ts";

function opened(): Breaker {
  const breaker = new Breaker({ failureThreshold: 2, cooldownMs: 1_000 });
  for (const claim of ["a", "b"]) breaker.released(claim, 0, "failed", 0);
  return breaker;
}

describe("a breaker", () => {
  it("opens after failures in a row, and only those count", () => {
    const breaker = new Breaker({ failureThreshold: 2, cooldownMs: 1_000 });
    for (const result of ["failed", "answered", "failed", "refused", "back_pressure", "cancelled"] as const)
      breaker.released("x", 0, result, 0);
    expect(breaker.closed).toBe(true);
    breaker.released("x", 0, "failed", 0);
    expect([breaker.closed, breaker.openUntilMs(999), breaker.openUntilMs(1_000)]).toEqual([false, 1_000, 0]);
  });

  it("lets one request probe after the cool-down, whose answer closes it", () => {
    const breaker = opened();
    breaker.claimed("early", 999);
    expect(breaker.probing).toBe(false);
    breaker.claimed("probe", 1_000);
    breaker.claimed("other", 1_000);
    expect(breaker.probing).toBe(true);
    breaker.released("probe", 1_000, "answered", 1_100);
    expect([breaker.closed, breaker.probing]).toEqual([true, false]);
  });

  it("waits twice as long after each failed probe, up to five minutes, and starts anew once it closed", () => {
    const breaker = opened();
    const waits: number[] = [];
    let nowMs = 1_000;
    for (let probe = 0; probe < 10; probe++) {
      breaker.claimed("probe", nowMs);
      breaker.released("probe", nowMs, "failed", nowMs);
      waits.push(breaker.openUntilMs(nowMs) - nowMs);
      nowMs = breaker.openUntilMs(nowMs);
    }
    expect(waits.slice(0, 4)).toEqual([2_000, 4_000, 8_000, 16_000]);
    expect(waits.at(-1)).toBe(300_000);
    breaker.claimed("probe", nowMs);
    breaker.released("probe", nowMs, "answered", nowMs);
    for (const claim of ["a", "b"]) breaker.released(claim, nowMs, "failed", nowMs);
    expect(breaker.openUntilMs(nowMs) - nowMs).toBe(1_000);
  });

  it("books a probe that was cut as one that proved nothing: open again, for no longer than before", () => {
    const breaker = opened();
    breaker.claimed("probe", 1_000);
    breaker.released("probe", 1_000, "cancelled", 1_500);
    expect([breaker.probing, breaker.openUntilMs(1_500)]).toEqual([false, 2_500]);
  });

  it("stays half-open when the probe met a busy machine or the caller's own fault", () => {
    const breaker = opened();
    for (const result of ["back_pressure", "refused"] as const) {
      breaker.claimed("probe", 1_000);
      breaker.released("probe", 1_000, result, 1_100);
      expect([breaker.closed, breaker.probing, breaker.openUntilMs(1_100)]).toEqual([false, false, 0]);
    }
  });

  it("is not closed by an answer to what was sent before it opened", () => {
    const breaker = opened();
    breaker.released("old", -1, "answered", 10);
    expect(breaker.closed).toBe(false);
    breaker.released("new", 5, "answered", 10);
    expect(breaker.closed).toBe(true);
  });
});

describe("a machine behind its breaker", () => {
  it("gets one request at a time while it is probed, and the others go elsewhere", () => {
    const simulation = new PoolSimulation(
      [replica("a/r", { priority: 0 }), replica("b/r", { priority: 1, slots: 50 })],
      {
        failureThreshold: 1,
        cooldownMs: 1_000,
      },
    );
    simulation.handle({ kind: "tick" });
    const where: string[] = [];
    const ask = () => simulation.admit({ serviceMs: 10_000, onGranted: ({ target }) => where.push(target.key) });
    simulation.admit({ serviceMs: 10_000 });
    simulation.handle({ kind: "settle", claimId: "r1.1", result: "failed" });
    ask();
    simulation.runUntil(1_000);
    ask();
    ask();
    ask();
    expect(where).toEqual(["b/r", "a/r", "b/r", "b/r"]);
  });
});
