import { describe, expect, it } from "vitest";
import { DecisionLog, type RequestDecision } from "../../../../../edge/dispatch/account/decision-log.ts";
import { manualBench, replica } from "../../../../support/dispatch-bench.ts";

const decision = (requestId: string, project = "p"): RequestDecision => ({
  requestId,
  project,
  model: "m",
  band: "default",
  queueMs: 0,
  outcome: "completed",
  attempts: [],
});

describe("the log of decisions", () => {
  it("tells a project of its own requests, for an hour", () => {
    const log = new DecisionLog();
    log.add(decision("r1"), 0);
    expect(log.find("r1", "p", 3_600_000)).toEqual(decision("r1"));
    expect(log.find("r1", "other", 0)).toBeNull();
    expect(log.find("r1", "p", 3_600_001)).toBeNull();
    expect(log.find("r2", "p", 0)).toBeNull();
  });

  it("keeps no more than its bound, the latest", () => {
    const log = new DecisionLog();
    for (let made = 0; made < 10_001; made++) log.add(decision(`r${made}`), 0);
    expect(log.find("r0", "p", 0)).toBeNull();
    expect(log.find("r1", "p", 0)).not.toBeNull();
    expect(log.find("r10000", "p", 0)).not.toBeNull();
  });

  it("has every attempt with what stood for and against it then", async () => {
    const two = [replica("gpu/r1"), replica("hpc/r1", { priority: 1 })];
    const { ask, exchange, dispatcher } = await manualBench({ replicas: two });
    const { done } = ask({}, { requestId: "r1" });
    (await exchange(0)).fail("closed_before_headers");
    (await exchange(1)).headers(200, { "content-type": "application/json" }).text("{}").end();
    await done;
    const found = dispatcher.decisionOf("r1", "p1");
    expect(found).toMatchObject({
      band: "default",
      outcome: "completed",
      attempts: [
        { replica: "gpu/r1", failure: "upstream_error", why: { ceiling: 0.9, candidates: [{ replica: "gpu/r1" }] } },
        { replica: "hpc/r1", failure: null, why: { candidates: [{ replica: "hpc/r1", matchedBytes: 0 }] } },
      ],
    });
    expect(found?.attempts[0]?.why?.saturation).toBe(0);
    expect(found?.attempts[0]?.why?.candidates[0]?.seconds).toBeGreaterThan(0);
  });
});
