/** Hedges that each request earns, and the most that are saved up; none to begin with, so that their share never passes this. */
const EARNED = 0.02;
const MOST_SAVED = 2;
/** First tokens remembered for each model, and how many must be known before they say anything. */
const REMEMBERED = 200;
const CONVINCING = 20;
const QUANTILE = 0.95;
/** Models remembered; one that is forgotten is learnt anew. */
const MAX_MODELS = 1_024;

interface ModelHedging {
  saved: number;
  /** A ring: the oldest is overwritten. */
  readonly firstTokensMs: number[];
  next: number;
  /** The same times in ascending order, kept so: they are asked for with every attempt. */
  readonly ascendingMs: number[];
}

/**
 * When a stream counts as slow to begin, by what its model lately took, and whether a second machine may be asked for
 * it: for two of a hundred requests at most. Pure: it reads no clock.
 */
export class Hedges {
  readonly #models = new Map<string, ModelHedging>();

  requestStarted(model: string): void {
    const own = this.#of(model);
    own.saved = Math.min(MOST_SAVED, own.saved + EARNED);
  }

  /** `ms`: from the sending of an attempt to its first token. */
  firstToken(model: string, ms: number): void {
    const own = this.#of(model);
    const forgotten = own.firstTokensMs[own.next];
    if (forgotten !== undefined) own.ascendingMs.splice(placeOf(own.ascendingMs, forgotten), 1);
    own.firstTokensMs[own.next] = ms;
    own.next = (own.next + 1) % REMEMBERED;
    own.ascendingMs.splice(placeOf(own.ascendingMs, ms), 0, ms);
  }

  /** Null while too little is known. */
  slowAfterMs(model: string): number | null {
    const { ascendingMs } = this.#of(model);
    if (ascendingMs.length < CONVINCING) return null;
    return ascendingMs[Math.ceil(QUANTILE * ascendingMs.length) - 1] ?? null;
  }

  /** A fiftieth cannot be added up exactly. */
  allows(model: string): boolean {
    return this.#of(model).saved >= 1 - 1e-9;
  }

  spend(model: string): void {
    this.#of(model).saved -= 1;
  }

  /** There was no second machine to be had. */
  refund(model: string): void {
    this.#of(model).saved += 1;
  }

  #of(model: string): ModelHedging {
    const own = this.#models.get(model) ?? { saved: 0, firstTokensMs: [], next: 0, ascendingMs: [] };
    this.#models.delete(model);
    this.#models.set(model, own);
    if (this.#models.size > MAX_MODELS) {
      const [oldest] = this.#models.keys();
      if (oldest !== undefined) this.#models.delete(oldest);
    }
    return own;
  }
}

/** Where the first number stands that is not below `ms`, by halves. */
function placeOf(ascending: readonly number[], ms: number): number {
  let from = 0;
  let to = ascending.length;
  while (from < to) {
    const middle = (from + to) >>> 1;
    if ((ascending[middle] ?? ms) < ms) from = middle + 1;
    else to = middle;
  }
  return from;
}
