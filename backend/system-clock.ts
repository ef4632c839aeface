import { LONGEST_TIMER_MS, type Clock } from "../shared/time/clock.ts";

/** The machine's clock, for everything but tests. */
export const systemClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delayMs, fire) {
    const timer = setTimeout(fire, Math.min(delayMs, LONGEST_TIMER_MS));
    return () => clearTimeout(timer);
  },
};
