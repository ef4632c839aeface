/** How long a machine lately took, as 99 of 100 requests would see it. */
export interface Pace {
  readonly ttftMs: number;
  /** Null while too few streams had more than one token. */
  readonly tpotMs: number | null;
  /** From 1, just measured, towards 0: a machine that was slow once must be tried again. */
  readonly trust: number;
}

/** What is left of a measure after each further one. */
const KEPT = 0.95;
const TRUSTED_FROM = 5;
const TRUST_HALF_LIFE_MS = 30_000;
/** Of a normal spread, so many deviations above the mean lie 99 of 100. */
const P99_DEVIATIONS = 2.33;

/** A mean and a spread that forget. */
class FadingMeasure {
  #weight = 0;
  #sum = 0;
  #squares = 0;
  #seen = 0;

  add(value: number): void {
    this.#weight = KEPT * this.#weight + 1;
    this.#sum = KEPT * this.#sum + value;
    this.#squares = KEPT * this.#squares + value * value;
    this.#seen++;
  }

  /** Null until enough was seen. */
  get p99(): number | null {
    if (this.#seen < TRUSTED_FROM) return null;
    const mean = this.#sum / this.#weight;
    return mean + P99_DEVIATIONS * Math.sqrt(Math.max(0, this.#squares / this.#weight - mean * mean));
  }
}

/** Times to the first and to each further token of one machine's streams. */
export class PaceMeter {
  readonly #ttft = new FadingMeasure();
  readonly #tpot = new FadingMeasure();
  #lastAtMs = -Infinity;

  add({ ttftMs, tpotMs }: { readonly ttftMs: number; readonly tpotMs: number | null }, nowMs: number): void {
    this.#ttft.add(ttftMs);
    if (tpotMs !== null) this.#tpot.add(tpotMs);
    this.#lastAtMs = nowMs;
  }

  /** Null while too little is known. */
  at(nowMs: number): Pace | null {
    const ttftMs = this.#ttft.p99;
    if (ttftMs === null) return null;
    const trust = 0.5 ** (Math.max(0, nowMs - this.#lastAtMs) / TRUST_HALF_LIFE_MS);
    return { ttftMs, tpotMs: this.#tpot.p99, trust };
  }
}
