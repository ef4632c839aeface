/** Older observations count half after this much observed time. */
const HALF_LIFE_MS = 30_000;
/** Less observed time than this tells nothing. */
const LEAST_OBSERVED_MS = 10;

/**
 * How fast something drains while there is something to drain: departures over the time in which they were possible,
 * both fading, so that idle hours and simultaneous departures do not distort it.
 */
export class DrainRate {
  #observedMs = 0;
  #departures = 0;
  #lastMs: number | null = null;

  /** Time has come this far; `draining` says whether there was anything to drain since the last call. */
  observe(nowMs: number, draining: boolean): void {
    const passedMs = this.#lastMs === null ? 0 : Math.max(0, nowMs - this.#lastMs);
    this.#lastMs = nowMs;
    if (!draining || passedMs === 0) return;
    const kept = 2 ** (-passedMs / HALF_LIFE_MS);
    this.#observedMs = this.#observedMs * kept + passedMs;
    this.#departures *= kept;
  }

  departed(): void {
    this.#departures++;
  }

  /** Mean time between two departures; null while nothing is known. */
  get intervalMs(): number | null {
    if (this.#observedMs < LEAST_OBSERVED_MS || this.#departures < 0.5) return null;
    return this.#observedMs / this.#departures;
  }
}

/** Whole seconds from 1 to `maxSeconds`, as Retry-After wants them. */
export function retryAfterSeconds(waitMs: number, maxSeconds: number): number {
  return Math.min(maxSeconds, Math.max(1, Math.ceil(waitMs / 1_000)));
}
