/** Work counts half after this time. */
const HALF_LIFE_MS = 60_000;
/** Less than a token is forgotten. */
const NOTHING = 1;
const MAX_KEYS = 4_096;
/** So many are left when there were too many, so that it is not done for every key. */
const KEPT_KEYS = 3_072;

/** What is left of `work` after a while. */
export function faded(work: number, afterMs: number): number {
  return work * 2 ** (-Math.max(0, afterMs) / HALF_LIFE_MS);
}

interface Mark {
  work: number;
  atMs: number;
}

/**
 * Work done lately by key, fading with time: the measure of fairness between projects. Bounded: what has faded is
 * forgotten, and beyond `MAX_KEYS` whoever was entered first.
 */
export class DecayedWork {
  readonly #marks = new Map<string, Mark>();

  get size(): number {
    return this.#marks.size;
  }

  of(key: string, nowMs: number): number {
    const mark = this.#marks.get(key);
    return mark === undefined ? 0 : faded(mark.work, nowMs - mark.atMs);
  }

  /** `amount` may be negative, when less was used than was charged; nobody falls below nothing. */
  add(key: string, amount: number, nowMs: number): void {
    const work = Math.max(0, this.of(key, nowMs) + amount);
    if (work < NOTHING) {
      this.#marks.delete(key);
      return;
    }
    this.#marks.set(key, { work, atMs: nowMs });
    if (this.#marks.size > MAX_KEYS) this.#forget(nowMs);
  }

  /** As if `amount` had been added at `fromMs`: what was charged too much then has faded since like the rest. */
  correct(key: string, amount: number, fromMs: number, nowMs: number): void {
    this.add(key, faded(amount, nowMs - fromMs), nowMs);
  }

  /** Whoever was away starts no further back than those who are served now: what it did not use is not saved up. */
  lift(key: string, floor: number, nowMs: number): void {
    const missing = floor - this.of(key, nowMs);
    if (missing > 0) this.add(key, missing, nowMs);
  }

  #forget(nowMs: number): void {
    for (const key of this.#marks.keys()) if (this.of(key, nowMs) < NOTHING) this.#marks.delete(key);
    for (const key of this.#marks.keys()) {
      if (this.#marks.size <= KEPT_KEYS) return;
      this.#marks.delete(key);
    }
  }
}
