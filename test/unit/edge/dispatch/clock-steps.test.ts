import { describe, expect, it } from "vitest";
import { MemoryLimits } from "../../../../edge/limits/limits.memory.ts";
import { readRetryAfterSeconds } from "../../../../edge/dispatch/relay/refusal.ts";
import { NO_SCOPE_LIMITS } from "../../../../edge/ports/limits.ts";
import { errorOf, manualBench, replica } from "../../../support/dispatch-bench.ts";
import { waitFor } from "../../../support/scripted-upstream.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const MINUTE_MS = 60_000;
/** Somebody sets the clock, summer begins and ends, a day is a second longer. */
const STEPS_MS = [-10 * MINUTE_MS, 10 * MINUTE_MS, 60 * MINUTE_MS, -60 * MINUTE_MS, 1_000, -1_000];

describe("a clock that jumps (C091)", () => {
  it("neither refills a limit nor locks anybody out for longer than its window", async () => {
    const clock = new ManualClock();
    const limits = new MemoryLimits(clock, { requestsPerMinute: 0, tokensPerMinute: 0, reservationTtlMs: 3_600_000 });
    let id = 0;
    const reserve = () =>
      limits.reserve({
        account: "acme",
        requestId: `req_${++id}`,
        atMs: clock.nowMs(),
        model: "m",
        scopes: [{ id: "key:k1", limits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 2, tokensPerMinute: 100 } }],
        inputTokensEstimate: 10,
        outputTokensLimit: 10,
        costBoundNanoUsd: "0",
      });
    for (let call = 0; call < 2; call++) expect((await reserve()).kind).toBe("granted");
    for (const stepMs of STEPS_MS) {
      clock.stepWall(stepMs);
      const refused = await reserve();
      expect(refused).toMatchObject({ kind: "refused", retryAfterSeconds: expect.any(Number) });
      const seconds = refused.kind === "refused" ? (refused.retryAfterSeconds ?? 0) : 0;
      expect(seconds).toBeGreaterThanOrEqual(1);
      expect(seconds).toBeLessThanOrEqual(60);
    }
    clock.advance(MINUTE_MS);
    for (let call = 0; call < 2; call++) expect((await reserve()).kind).toBe("granted");
  });

  it("makes nobody's wait in the queue shorter or longer", async () => {
    const { ask, clock, coordinator, exchange, upstream } = await manualBench({
      replicas: [replica("gpu/r1", { slots: 1 })],
    });
    ask({}, { requestId: "req_runs" });
    await exchange(0);
    const { writer, done } = ask({}, { requestId: "req_waits" });
    const others: Promise<void>[] = [];
    for (const stepMs of STEPS_MS) {
      clock.stepWall(stepMs);
      clock.advance(5_000);
      // Whoever comes makes the pool look at its clock.
      others.push(ask({}, { requestId: `req_${others.length}` }).done);
      await waitFor(async () => (await coordinator.stats())[0]?.queueDepthByBand["default"] === others.length + 1);
      expect(writer.over).toBe(false);
    }
    clock.advance(2 * MINUTE_MS);
    await Promise.all([done, ...others]);
    expect(errorOf(writer).code).toBe("queue_timeout");
    expect(Number(writer.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    expect(Number(writer.headers["retry-after"])).toBeLessThanOrEqual(60);
    expect(upstream.exchanges).toHaveLength(1);
  });

  it("never makes a date that a machine gave into a wait below a second or beyond an hour", () => {
    const nowMs = Date.UTC(2026, 0, 1);
    for (const stepMs of [...STEPS_MS, -86_400_000, 86_400_000]) {
      const seconds = readRetryAfterSeconds(new Date(nowMs + 7_000).toUTCString(), nowMs + stepMs);
      expect(seconds).toBeGreaterThanOrEqual(1);
      expect(seconds).toBeLessThanOrEqual(3_600);
    }
  });
});
