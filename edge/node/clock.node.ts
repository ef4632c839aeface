import { performance } from "node:perf_hooks";
import { LONGEST_TIMER_MS, type Clock } from "../../shared/time/clock.ts";
import { TransientMap } from "../../shared/transient-map.ts";

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
  readonly #timers = new TransientMap<number, NodeJS.Timeout>();
  #lastId = 0;
  #closed = false;

  nowMs(): number {
    return Date.now();
  }

  monotonicMs(): number {
    return performance.now();
  }

  after(delayMs: number, fire: () => void): () => void {
    if (this.#closed) return () => undefined;
    const id = ++this.#lastId;
    const timer = setTimeout(
      () => {
        this.#timers.delete(id);
        fire();
      },
      Math.min(delayMs, LONGEST_TIMER_MS),
    );
    this.#timers.set(id, timer);
    return () => {
      this.#timers.delete(id);
      clearTimeout(timer);
    };
  }

  close(): void {
    this.#closed = true;
    for (const timer of this.#timers.values()) clearTimeout(timer);
    this.#timers.clear();
  }
}
