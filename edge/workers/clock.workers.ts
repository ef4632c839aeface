import { LONGEST_TIMER_MS, type Clock } from "../../shared/time/clock.ts";

/** The runtime's time, which stands still while code runs between two awaits of I/O. */
export const workersClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delayMs, fire) {
    const timer = setTimeout(fire, Math.min(delayMs, LONGEST_TIMER_MS));
    return () => clearTimeout(timer);
  },
};
