import { retryAfterSeconds } from "./drain-rate.ts";

/** How much earlier or later than told a client may come back and still find its place. */
const EARLY_MS = 500;
const LATE_MS = 3_000;
const ROUNDING_MS = 1_000;
/** Its multiples, without their whole part, spread evenly. */
const GOLDEN = 0.618_033_988_749_895;
const MAX_PLACES = 4_096;
/** Places are spaced a little wider than the band drains, or chance alone would fill the queue before they are due. */
const SPACING = 1.15;

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
  /** In order of their giving, which is that of their time but for the rounding to whole seconds. */
  readonly #places: Place[] = [];
  #lastDueMs = 0;
  #unplaced = 0;

  /** How much of a queue is kept from newcomers: what is due now, and a quarter for what comes next. */
  kept(nowMs: number, capacity: number): number {
    this.#expire(nowMs);
    if (this.#places.length === 0) return 0;
    let due = 0;
    for (const { dueMs } of this.#places) {
      if (dueMs > nowMs + ROUNDING_MS + EARLY_MS) break;
      if (dueMs - EARLY_MS <= nowMs) due++;
    }
    return due + Math.ceil(capacity / 4);
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
    const dueMs = Math.max(nowMs + waitMs, this.#places.length === 0 ? 0 : this.#lastDueMs + intervalMs * SPACING);
    if (dueMs > nowMs + maxSeconds * 1_000 || this.#places.length >= MAX_PLACES) {
      // No place can be promised so late. Those who come back are spread, or they would all come at once.
      this.#unplaced++;
      return retryAfterSeconds(maxSeconds * 1_000 * (0.5 + ((this.#unplaced * GOLDEN) % 1) / 2), maxSeconds);
    }
    const seconds = retryAfterSeconds(dueMs - nowMs, maxSeconds);
    this.#lastDueMs = dueMs;
    this.#places.push({ project, dueMs: nowMs + seconds * 1_000 });
    return seconds;
  }

  #expire(nowMs: number): void {
    let expired = 0;
    while ((this.#places[expired]?.dueMs ?? Infinity) + LATE_MS < nowMs) expired++;
    if (expired > 0) this.#places.splice(0, expired);
  }
}
