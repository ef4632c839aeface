/** Durations that the estimate looks back on. */
const REMEMBERED = 50;
const ENOUGH = 3;
const UNKNOWN_SECONDS = 5;
const MAX_SECONDS = 60;

/** How long a refused request should wait, from how long requests held a slot lately. */
export class WaitEstimate {
  readonly #durationsMs: number[] = [];

  record(durationMs: number): void {
    this.#durationsMs.push(durationMs);
    if (this.#durationsMs.length > REMEMBERED) this.#durationsMs.shift();
  }

  /** Median duration times the requests ahead of a newcomer over the slots; whole seconds, 1 to 60. */
  seconds(requestsAhead: number, slots: number): number {
    const sorted = this.#durationsMs.toSorted((a, b) => a - b);
    const median = sorted[Math.floor(sorted.length / 2)];
    if (median === undefined || sorted.length < ENOUGH) return UNKNOWN_SECONDS;
    return Math.min(MAX_SECONDS, Math.max(1, Math.ceil((median * requestsAhead) / slots / 1_000)));
  }
}
