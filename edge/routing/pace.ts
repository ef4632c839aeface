/** How long a machine's streams of the last while took, but for the few worst. */
export interface Pace {
  readonly ttftMs: number;
  /** Null while too few streams had more than one token. */
  readonly tpotMs: number | null;
}

/**
 * Older streams say nothing: a machine that missed what was promised is tried anew when it was left alone for so long,
 * and is back as soon as what it missed is past.
 */
const REMEMBERED_MS = 30_000;
const MOST_REMEMBERED = 64;
const CONVINCING = 3;
/** Of the streams that are remembered so many in a hundred must have been no slower. One hiccup of many is forgiven. */
const QUANTILE = 0.95;

interface SeenStream {
  readonly ttftMs: number;
  readonly tpotMs: number | null;
  readonly atMs: number;
}

/** Times to the first and to each further token of one machine's streams. */
export class PaceMeter {
  /** In order of their time. */
  readonly #seen: SeenStream[] = [];
  #known: { readonly pace: Pace | null; readonly untilMs: number } | null = null;

  add({ ttftMs, tpotMs }: Omit<SeenStream, "atMs">, nowMs: number): void {
    this.#seen.push({ ttftMs, tpotMs, atMs: nowMs });
    if (this.#seen.length > MOST_REMEMBERED) this.#seen.shift();
    this.#known = null;
  }

  /** Null while too little is known. */
  at(nowMs: number): Pace | null {
    if (this.#known !== null && nowMs < this.#known.untilMs) return this.#known.pace;
    while ((this.#seen[0]?.atMs ?? Infinity) <= nowMs - REMEMBERED_MS) this.#seen.shift();
    const ttftMs = quantile(this.#seen.map((stream) => stream.ttftMs));
    const tpotMs = quantile(this.#seen.flatMap((stream) => stream.tpotMs ?? []));
    const pace = ttftMs === null ? null : { ttftMs, tpotMs };
    this.#known = { pace, untilMs: (this.#seen[0]?.atMs ?? Infinity) + REMEMBERED_MS };
    return pace;
  }
}

function quantile(values: readonly number[]): number | null {
  if (values.length < CONVINCING) return null;
  return values.toSorted((left, right) => left - right)[Math.ceil(QUANTILE * values.length) - 1] ?? null;
}
