/** Further attempts that each request earns, and the most that are saved up. */
const EARNED = 0.1;
const MOST_SAVED = 10;
/** Pools remembered; a pool that is forgotten starts anew with all it can save. */
const MAX_POOLS = 1_024;

/**
 * Bounds further attempts to a tenth of the requests of each pool, so that machines in trouble do not get more work
 * than they would healthy. Pure: it reads no clock.
 */
export class RetryBudgets {
  readonly #saved = new Map<string, number>();

  requestStarted(pool: string): void {
    const saved = Math.min(MOST_SAVED, this.#savedBy(pool) + EARNED);
    // Anew at the end: those not asked for longest are forgotten first.
    this.#saved.delete(pool);
    this.#saved.set(pool, saved);
    if (this.#saved.size <= MAX_POOLS) return;
    for (const oldest of this.#saved.keys()) {
      this.#saved.delete(oldest);
      return;
    }
  }

  /** Whether the pool has a further attempt left. */
  allows(pool: string): boolean {
    // A tenth cannot be added up exactly.
    return this.#savedBy(pool) >= 1 - 1e-9;
  }

  /** A further attempt is being made. */
  spend(pool: string): void {
    this.#saved.set(pool, this.#savedBy(pool) - 1);
  }

  #savedBy(pool: string): number {
    return this.#saved.get(pool) ?? MOST_SAVED;
  }
}
