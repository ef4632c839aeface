import type { Clock } from "../../../shared/time/clock.ts";

/**
 * A timer whose deadline moves often, as with every chunk of a stream: moving it later costs one assignment, since
 * the armed timer looks at the deadline when it fires and waits for the rest.
 */
export class LazyTimer {
  readonly #clock: Clock;
  readonly #fire: () => void;
  #deadlineMs: number | null = null;
  #armedForMs = Infinity;
  #cancel: (() => void) | null = null;

  constructor(clock: Clock, fire: () => void) {
    this.#clock = clock;
    this.#fire = fire;
  }

  /** Fires after `delayMs` from now unless moved or stopped before; 0 stops it. */
  set(delayMs: number): void {
    if (delayMs <= 0) {
      this.stop();
      return;
    }
    this.#deadlineMs = this.#clock.monotonicMs() + delayMs;
    if (this.#cancel !== null && this.#armedForMs <= this.#deadlineMs) return;
    this.#cancel?.();
    this.#arm(delayMs);
  }

  /** It may stay armed and find nothing to do. */
  stop(): void {
    this.#deadlineMs = null;
  }

  /** For good. */
  dispose(): void {
    this.#deadlineMs = null;
    this.#cancel?.();
    this.#cancel = null;
  }

  #arm(delayMs: number): void {
    this.#armedForMs = this.#clock.monotonicMs() + delayMs;
    this.#cancel = this.#clock.after(delayMs, () => {
      this.#cancel = null;
      if (this.#deadlineMs === null) return;
      const restMs = this.#deadlineMs - this.#clock.monotonicMs();
      if (restMs > 0) {
        this.#arm(restMs);
        return;
      }
      this.#deadlineMs = null;
      this.#fire();
    });
  }
}
