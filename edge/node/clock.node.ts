import { performance } from "node:perf_hooks";
import type { Clock } from "../../shared/time/clock.ts";

/** The system's time. */
export const nodeClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delayMs, fire) {
    const timer = setTimeout(fire, delayMs);
    return () => clearTimeout(timer);
  },
};
