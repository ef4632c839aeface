import type { Clock } from "../../shared/time/clock.ts";

interface Timer {
  readonly atMs: number;
  readonly order: number;
  readonly fire: () => void;
}

/** Time that moves only when a test says so; timers fire in order of their due time, then of their making. */
export class ManualClock implements Clock {
  #nowMs: number;
  #monotonicMs = 0;
  #order = 0;
  readonly #timers = new Set<Timer>();

  constructor(startMs = Date.UTC(2026, 0, 1)) {
    this.#nowMs = startMs;
  }

  nowMs(): number {
    return this.#nowMs;
  }

  monotonicMs(): number {
    return this.#monotonicMs;
  }

  after(delayMs: number, fire: () => void): () => void {
    const timer = { atMs: this.#monotonicMs + Math.max(0, delayMs), order: this.#order++, fire };
    this.#timers.add(timer);
    return () => {
      this.#timers.delete(timer);
    };
  }

  /** Timers that have neither fired nor been cancelled. */
  get pendingTimers(): number {
    return this.#timers.size;
  }

  advance(ms: number): void {
    const end = this.#monotonicMs + ms;
    for (;;) {
      const due = [...this.#timers]
        .filter((timer) => timer.atMs <= end)
        .toSorted((a, b) => a.atMs - b.atMs || a.order - b.order)[0];
      if (due === undefined) break;
      this.#timers.delete(due);
      this.#step(due.atMs - this.#monotonicMs);
      due.fire();
    }
    this.#step(end - this.#monotonicMs);
  }

  /** The wall clock jumps; durations are not touched. */
  stepWall(ms: number): void {
    this.#nowMs += ms;
  }

  #step(ms: number): void {
    this.#monotonicMs += ms;
    this.#nowMs += ms;
  }
}
