import { describe, expect, it, vi } from "vitest";
import { ClosableClock, nodeClock } from "../../../../edge/node/clock.node.ts";
import { RunningRequests } from "../../../../edge/node/running-requests.ts";

const THIRTY_DAYS_MS = 30 * 86_400_000;
const HOUR_MS = 3_600_000;

describe("a time limit of more than 25 days", () => {
  it.each([
    ["the system's clock", nodeClock],
    ["a clock that can be closed", new ClosableClock()],
  ])("does not fire at once on %s", (_name, clock) => {
    vi.useFakeTimers();
    try {
      let fired = 0;
      clock.after(THIRTY_DAYS_MS, () => fired++);
      vi.advanceTimersByTime(HOUR_MS);
      expect(fired).toBe(0);
    } finally {
      vi.useRealTimers();
    }
  });

  it("lets running requests go on while draining", async () => {
    vi.useFakeTimers();
    try {
      const requests = new RunningRequests();
      let end: () => void = () => undefined;
      const running = requests.track(() => new Promise<void>((resolve) => (end = resolve)));
      const idle = requests.idleWithin(THIRTY_DAYS_MS);
      vi.advanceTimersByTime(HOUR_MS);
      end();
      await running;
      expect(await idle).toBe(true);
    } finally {
      vi.useRealTimers();
    }
  });
});
