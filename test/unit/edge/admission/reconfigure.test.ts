import { beforeEach, describe, expect, it } from "vitest";
import { InProcessCoordinator } from "../../../../edge/admission/coordinator.ts";
import {
  DEFAULT_ADMISSION_SETTINGS,
  DEFAULT_BAND,
  type AdmissionSettings,
} from "../../../../edge/admission/settings.ts";
import type { AdmitDecision, AdmitRequest } from "../../../../edge/ports/coordinator.ts";
import { replica } from "../../../support/dispatch-bench.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const band = (name: string, more: Partial<(typeof DEFAULT_ADMISSION_SETTINGS.bands)[number]> = {}) => ({
  ...DEFAULT_BAND,
  name,
  ...more,
});

describe("a coordinator that is given other settings", () => {
  let clock: ManualClock;
  let coordinator: InProcessCoordinator;
  const settings = (more: Partial<AdmissionSettings>): AdmissionSettings => ({
    ...DEFAULT_ADMISSION_SETTINGS,
    ...more,
  });

  beforeEach(async () => {
    clock = new ManualClock();
    coordinator = new InProcessCoordinator({ clock, settings: settings({ bands: [band("fast"), band("slow")] }) });
    await coordinator.update({ pool: "m", replicas: [replica("a/r", { slots: 1 })] });
  });

  const admit = (requestId: string, more: Partial<AdmitRequest> = {}): { decision: AdmitDecision | null } => {
    const asked: { decision: AdmitDecision | null } = { decision: null };
    void coordinator
      .admit({
        pool: "m",
        requestId,
        attempt: 1,
        project: "p",
        band: "slow",
        arrivedAtMs: clock.nowMs(),
        capability: "chat",
        saeIds: [],
        needsSomeSae: false,
        excludedReplicas: [],
        bodyBytes: 10,
        returning: null,
        inputTokens: 10,
        outputTokens: 10,
        session: null,
        prefix: null,
        ...more,
      })
      .then((decision) => (asked.decision = decision));
    return asked;
  };
  const turn = async (): Promise<void> => {
    for (let at = 0; at < 5; at++) await Promise.resolve();
  };

  it("keeps claims and what waits, also in a band that is gone, which is served under its old terms", async () => {
    const running = admit("running");
    const waiting = admit("waiting");
    await turn();
    coordinator.reconfigure(settings({ bands: [band("fast", { priority: 5 })] }));
    const first = admit("first", { band: "fast" });
    await turn();
    expect([running.decision?.kind, waiting.decision, first.decision]).toEqual(["claimed", null, null]);
    await coordinator.settle({ pool: "m", claimId: "running.1", result: "answered" });
    await turn();
    expect(first.decision?.kind).toBe("claimed");
    await coordinator.settle({ pool: "m", claimId: "first.1", result: "answered" });
    await turn();
    expect(waiting.decision?.kind).toBe("claimed");
  });

  it("judges what waits by a new limit at once", async () => {
    admit("running");
    const waiting = admit("waiting");
    await turn();
    clock.advance(2_000);
    coordinator.reconfigure(settings({ bands: [band("fast"), band("slow", { queueTtlMs: 1_000 })] }));
    await turn();
    expect(waiting.decision).toMatchObject({ kind: "refused", code: "queue_timeout" });
  });

  it("lets breakers follow the new threshold", async () => {
    coordinator.reconfigure(settings({ bands: [band("slow")], failureThreshold: 1 }));
    admit("failing");
    await turn();
    await coordinator.settle({ pool: "m", claimId: "failing.1", result: "failed" });
    await coordinator.update({ pool: "m", replicas: [replica("a/r", { slots: 1 }), replica("b/r", { slots: 1 })] });
    const next = admit("next");
    await turn();
    expect(next.decision).toMatchObject({ kind: "claimed", claim: { target: { key: "b/r" } } });
  });
});
