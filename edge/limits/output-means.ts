/** Before any answer was seen, a completion without a limit is taken to be this long. */
const FIRST_MEAN_TOKENS = 128;
const MEAN_WEIGHT = 0.1;
/** Pairs of key and model that are remembered; the one used longest ago is forgotten first. */
const MAX_PAIRS = 10_000;

/** How long the answers of a key and a model usually are: a running mean in which the newest tenth counts. */
export class OutputMeans {
  readonly #means = new Map<string, number>();

  /** Whole tokens. */
  expected(scopeId: string, model: string): number {
    return Math.ceil(this.#means.get(pairOf(scopeId, model)) ?? FIRST_MEAN_TOKENS);
  }

  learn(scopeId: string, model: string, completionTokens: number): void {
    const pair = pairOf(scopeId, model);
    const mean = this.#means.get(pair);
    this.#means.delete(pair);
    this.#means.set(pair, mean === undefined ? completionTokens : mean + (completionTokens - mean) * MEAN_WEIGHT);
    if (this.#means.size <= MAX_PAIRS) return;
    for (const oldest of this.#means.keys()) {
      this.#means.delete(oldest);
      return;
    }
  }
}

const pairOf = (scopeId: string, model: string): string => `${scopeId} ${model}`;
