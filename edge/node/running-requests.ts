import { LONGEST_TIMER_MS } from "../../shared/time/clock.ts";

/** Counts what runs, so that a process on its way out knows when it is done. */
export class RunningRequests {
  #running = 0;
  #whenIdle: (() => void)[] = [];

  get count(): number {
    return this.#running;
  }

  async track<Result>(work: () => Promise<Result>): Promise<Result> {
    this.#running++;
    try {
      return await work();
    } finally {
      this.#running--;
      if (this.#running === 0) {
        for (const resolve of this.#whenIdle) resolve();
        this.#whenIdle = [];
      }
    }
  }

  /** Resolves with true when nothing runs, or with false after `limitMs` or when `signal` says so. */
  async idleWithin(limitMs: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#running === 0) return true;
    if (signal?.aborted === true) return false;
    return new Promise((resolve) => {
      const end = (idle: boolean): void => {
        clearTimeout(timer);
        signal?.removeEventListener("abort", giveUp);
        resolve(idle);
      };
      const giveUp = (): void => end(false);
      const timer = setTimeout(giveUp, Math.min(limitMs, LONGEST_TIMER_MS));
      signal?.addEventListener("abort", giveUp, { once: true });
      this.#whenIdle.push(() => end(true));
    });
  }
}
