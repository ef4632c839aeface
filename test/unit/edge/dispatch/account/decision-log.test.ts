import { describe, expect, it } from "vitest";
import { DecisionLog, type RequestDecision } from "../../../../../edge/dispatch/account/decision-log.ts";
import { manualBench, replica } from "../../../../support/dispatch-bench.ts";
import { waitFor } from "../../../../support/scripted-upstream.ts";

const decision = (requestId: string, project = "p"): RequestDecision => ({
  requestId,
  project,
  atMs: 0,
  askedModel: "m",
  model: "m",
  band: "default",
  queueMs: 0,
  ttftMs: null,
  totalMs: 1,
  outcome: "completed",
  refusal: null,
  refusedUnder: null,
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

  it("tells operators the latest of all projects, the newest first, and nothing that is too old", () => {
    const log = new DecisionLog();
    for (const [place, id] of ["r1", "r2", "r3"].entries()) log.add(decision(id, `p${place}`), place * 1_000_000);
    expect(log.latest(2, 2_000_000).map(({ requestId }) => requestId)).toEqual(["r3", "r2"]);
    expect(log.latest(9, 4_700_000).map(({ requestId }) => requestId)).toEqual(["r3"]);
  });

  it("has how things stood when a request was refused", async () => {
    const { ask, exchange, clock, limits, dispatcher } = await manualBench({
      replicas: [replica("gpu/r1", { slots: 1 })],
    });
    ask({}, { requestId: "running" });
    await exchange(0);
    const { done } = ask({}, { requestId: "r1" });
    await waitFor(() => limits.reserved.length === 2);
    for (let second = 0; second < 61; second++) {
      await Promise.resolve();
      clock.advance(1_000);
    }
    await done;
    expect(dispatcher.decisionOf("r1", "p1")).toMatchObject({
      outcome: "shed",
      refusal: "queue_timeout",
      refusedUnder: { band: "default", saturation: 1, ceiling: 0.9, waiting: 0 },
      attempts: [],
    });
  });

  it("forgets by age and by number at once, as time goes on", () => {
    const log = new DecisionLog();
    for (let made = 0; made < 25_000; made++) log.add(decision(`r${made}`), made * 1_000);
    expect(log.find("r21398", "p", 25_000_000)).toBeNull();
    expect(log.find("r21400", "p", 25_000_000)).not.toBeNull();
    for (let made = 0; made < 10_001; made++) log.add(decision(`s${made}`), 25_000_000);
    expect(log.find("r24999", "p", 25_000_000)).toBeNull();
    expect(log.find("s0", "p", 25_000_000)).toBeNull();
    expect(log.find("s1", "p", 25_000_000)).not.toBeNull();
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
      askedModel: "m",
      model: "m",
      refusal: null,
      queueMs: 0,
      attempts: [
        {
          attempt: 1,
          replica: "gpu/r1",
          end: "failed",
          failure: "upstream_error",
          why: { ceiling: 0.9, by: "score", candidates: [{ replica: "gpu/r1" }] },
        },
        {
          attempt: 2,
          replica: "hpc/r1",
          end: "answered",
          failure: null,
          why: { candidates: [{ replica: "hpc/r1", matchedBytes: 0, terms: { kv: 0, slo: 0 } }] },
        },
      ],
    });
    expect(found?.attempts[0]?.why?.saturation).toBe(0);
    expect(found?.attempts[0]?.why?.candidates[0]?.seconds).toBeGreaterThan(0);
  });
});
