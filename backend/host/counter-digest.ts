import type { HourCounter } from "../../shared/protocol/report.ts";

/** All counters are sent again after this long, in case an edge lost what it had. */
const REPEAT_ALL_MS = 60_000;

/** Picks the hour counters that one edge has not been told as they are now, so that reports stay small. */
export class CounterDigest {
  readonly #told = new Map<string, string>();
  #allAtMs = Number.NEGATIVE_INFINITY;

  changed(counters: readonly HourCounter[], nowMs: number): HourCounter[] {
    if (nowMs - this.#allAtMs >= REPEAT_ALL_MS) {
      this.#told.clear();
      this.#allAtMs = nowMs;
    }
    return counters.filter((counter) => {
      const key = `${counter.edge ?? ""} ${counter.epoch} ${counter.hour}`;
      const now = `${counter.requests} ${counter.computed_prompt} ${counter.cached_prompt} ${counter.computed_completion}`;
      if (this.#told.get(key) === now) return false;
      this.#told.set(key, now);
      return true;
    });
  }

  /** The last report did not arrive: everything is to be told again. */
  reset(): void {
    this.#allAtMs = Number.NEGATIVE_INFINITY;
  }
}
