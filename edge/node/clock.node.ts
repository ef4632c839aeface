import { performance } from "node:perf_hooks";
import { LONGEST_TIMER_MS, type Clock } from "../../shared/time/clock.ts";

/** The system's time. */
export const nodeClock: Clock = {
  nowMs: () => Date.now(),
  monotonicMs: () => performance.now(),
  after(delayMs, fire) {
    const timer = setTimeout(fire, Math.min(delayMs, LONGEST_TIMER_MS));
    return () => clearTimeout(timer);
  },
};

/** The system's time with timers that end together: none fires after `close`, and none keeps the process. */
export class ClosableClock implements Clock {
  readonly #timers = new Set<NodeJS.Timeout>();
  #closed = false;

  nowMs(): number {
    return Date.now();
  }

  monotonicMs(): number {
    return performance.now();
  }

  after(delayMs: number, fire: () => void): () => void {
    if (this.#closed) return () => undefined;
    const timer = setTimeout(
      () => {
        this.#timers.delete(timer);
        fire();
      },
      Math.min(delayMs, LONGEST_TIMER_MS),
    );
    this.#timers.add(timer);
    return () => {
      this.#timers.delete(timer);
      clearTimeout(timer);
    };
  }

  close(): void {
    this.#closed = true;
    for (const timer of this.#timers) clearTimeout(timer);
    this.#timers.clear();
  }
}
