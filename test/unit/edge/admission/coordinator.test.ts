import { describe, expect, it } from "vitest";
import { InProcessCoordinator } from "../../../../edge/admission/coordinator.ts";
import { DEFAULT_ADMISSION_SETTINGS } from "../../../../edge/admission/settings.ts";
import type { AdmitDecision, AdmitRequest } from "../../../../edge/ports/coordinator.ts";
import { replica } from "../../../support/dispatch-bench.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

async function bench(slots = 1) {
  const clock = new ManualClock();
  const coordinator = new InProcessCoordinator({ clock, settings: DEFAULT_ADMISSION_SETTINGS });
  await coordinator.update({ pool: "m", replicas: [replica("a/r", { slots })] });
  const admit = (requestId: string, more: Partial<AdmitRequest> = {}): Promise<AdmitDecision> =>
    coordinator.admit({
      pool: "m",
      requestId,
      attempt: 1,
      project: "p",
      band: "default",
      arrivedAtMs: clock.nowMs(),
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
    });
  return { clock, coordinator, admit };
}

describe("the Coordinator in this process", () => {
  it("answers a claim with its target and its expiry in wall time", async () => {
    const { clock, admit } = await bench();
    expect(await admit("r1")).toMatchObject({
      kind: "claimed",
      queuedMs: 0,
      claim: { claimId: "r1.1", target: { key: "a/r" }, expiresAtMs: clock.nowMs() + 30_000 },
    });
  });

  it("resolves a waiting admit when a claim is settled, with the time it waited", async () => {
    const { clock, coordinator, admit } = await bench();
    await admit("r1");
    const second = admit("r2");
    clock.advance(1_500);
    await coordinator.settle({ pool: "m", claimId: "r1.1", result: "answered" });
    expect(await second).toMatchObject({ kind: "claimed", queuedMs: 1_500 });
  });

  it("lets time alone end a wait, whatever the wall clock does meanwhile", async () => {
    const { clock, admit, coordinator } = await bench();
    await admit("r1");
    const second = admit("r2");
    clock.stepWall(-600_000);
    for (let step = 0; step < 6; step++) {
      clock.advance(10_000);
      await coordinator.renew("m", ["r1.1"]);
    }
    expect(await second).toMatchObject({ kind: "refused", code: "queue_timeout" });
  });

  it("resolves a cancelled admit as cancelled, and nothing else happens to others", async () => {
    const { coordinator, admit } = await bench();
    await admit("r1");
    const second = admit("r2");
    const third = admit("r3");
    await coordinator.cancel("m", "r2");
    await coordinator.cancel("m", "r1");
    await coordinator.cancel("other", "r3");
    expect(await second).toEqual({ kind: "cancelled" });
    await coordinator.settle({ pool: "m", claimId: "r1.1", result: "answered" });
    expect(await third).toMatchObject({ kind: "claimed" });
  });

  it("lets the same request take its own place again, and ends the older wait", async () => {
    const { coordinator, admit } = await bench();
    await admit("r1");
    const older = admit("r2");
    const newer = admit("r2");
    expect(await older).toEqual({ kind: "cancelled" });
    await coordinator.settle({ pool: "m", claimId: "r1.1", result: "answered" });
    expect(await newer).toMatchObject({ kind: "claimed" });
  });

  it("keeps requests for a pool that it was not told of yet", async () => {
    const { coordinator, admit } = await bench();
    const early = admit("r1", { pool: "later" });
    await coordinator.update({ pool: "later", replicas: [replica("b/r")] });
    expect(await early).toMatchObject({ kind: "claimed", claim: { target: { key: "b/r" } } });
  });

  it("forgets a pool that has nothing left, and leaves no timer", async () => {
    const { clock, coordinator, admit } = await bench();
    await admit("r1");
    await coordinator.update({ pool: "m", replicas: [] });
    expect(await coordinator.stats()).toHaveLength(1);
    await coordinator.settle({ pool: "m", claimId: "r1.1", result: "answered" });
    expect(await coordinator.stats()).toEqual([]);
    expect(clock.pendingTimers).toBe(0);
  });

  it("lets everybody go when it closes", async () => {
    const { clock, coordinator, admit } = await bench();
    await admit("r1");
    const second = admit("r2");
    coordinator.close();
    expect(await second).toEqual({ kind: "cancelled" });
    expect(clock.pendingTimers).toBe(0);
  });
});
