/** Weight of the newest interval in the running mean. */
const NEWEST = 0.2;

/** How fast a pool gives slots back, as the running mean of the time between two releases. */
export class DrainRate {
  #lastAtMs: number | null = null;
  #meanMs: number | null = null;

  released(nowMs: number): void {
    if (this.#lastAtMs !== null) {
      const interval = Math.max(0, nowMs - this.#lastAtMs);
      this.#meanMs = this.#meanMs === null ? interval : this.#meanMs + NEWEST * (interval - this.#meanMs);
    }
    this.#lastAtMs = nowMs;
  }

  /** Milliseconds until the one at `place` (from 1) gets a slot; null while nothing is known. */
  waitMs(place: number): number | null {
    return this.#meanMs === null ? null : this.#meanMs * place;
  }
}

/** Whole seconds from 1 to `maxSeconds`, as Retry-After wants them. */
export function retryAfterSeconds(waitMs: number, maxSeconds: number): number {
  return Math.min(maxSeconds, Math.max(1, Math.ceil(waitMs / 1_000)));
}
