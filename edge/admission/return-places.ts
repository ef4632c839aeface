import { retryAfterSeconds } from "./drain-rate.ts";

/** How much earlier or later than told a client may come back and still find its place. */
const EARLY_MS = 500;
const LATE_MS = 3_000;
const MAX_PLACES = 4_096;

interface Place {
  readonly project: string;
  readonly dueMs: number;
}

/**
 * Times at which refused clients of one band were told to come back, spaced by the band's drain rate. A place that is
 * due is kept free for a request of that project, so that clients that obey Retry-After do not lose it to those that
 * hammer.
 */
export class ReturnPlaces {
  #places: Place[] = [];
  #lastDueMs = 0;

  /** Places due now and not yet taken. */
  due(nowMs: number): number {
    this.#expire(nowMs);
    return this.#places.filter(({ dueMs }) => dueMs - EARLY_MS <= nowMs).length;
  }

  /** Takes the project's place that is due; false when it has none. */
  take(project: string, nowMs: number): boolean {
    this.#expire(nowMs);
    const at = this.#places.findIndex((place) => place.project === project && place.dueMs - EARLY_MS <= nowMs);
    if (at === -1) return false;
    this.#places.splice(at, 1);
    return true;
  }

  /** Seconds after which the project should come back: `waitMs` from now, or one interval after the last told. */
  give(
    project: string,
    when: { readonly nowMs: number; readonly waitMs: number; readonly intervalMs: number; readonly maxSeconds: number },
  ): number {
    const { nowMs, waitMs, intervalMs, maxSeconds } = when;
    this.#expire(nowMs);
    const dueMs = Math.max(nowMs + waitMs, this.#places.length === 0 ? 0 : this.#lastDueMs + intervalMs);
    const seconds = retryAfterSeconds(dueMs - nowMs, maxSeconds);
    // Beyond the longest Retry-After no place can be promised.
    if (dueMs <= nowMs + maxSeconds * 1_000 && this.#places.length < MAX_PLACES) {
      this.#lastDueMs = dueMs;
      this.#places.push({ project, dueMs: nowMs + seconds * 1_000 });
    }
    return seconds;
  }

  #expire(nowMs: number): void {
    if (this.#places.some(({ dueMs }) => dueMs + LATE_MS < nowMs))
      this.#places = this.#places.filter(({ dueMs }) => dueMs + LATE_MS >= nowMs);
  }
}
