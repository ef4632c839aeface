import type { TokenLogprobs } from "../../native/binding.ts";
import type { SampledToken } from "../loop/generation-task.ts";

export interface TokenChance {
  readonly bytes: Uint8Array;
  /** Natural log; finite, at most 0. Null for a token that nothing stands before. */
  readonly logprob: number | null;
}
export interface TrailEntry extends TokenChance {
  readonly top: readonly TokenChance[];
}

/** JSON has no -Infinity; OpenAI's own stand-in for "never". */
const NEVER = -9_999;
const finite = (logprob: number): number => (Number.isFinite(logprob) ? Math.min(0, logprob) : NEVER);

/** The chances of one token and of its alternatives, in JSON's numbers. */
export function chancesOf(
  { logprob, topTokens, topLogprobs }: TokenLogprobs,
  tokenBytes: (token: number) => Uint8Array,
): Omit<TrailEntry, "bytes"> {
  return {
    logprob: finite(logprob),
    top: Array.from(topTokens, (token, place) => ({
      bytes: tokenBytes(token),
      logprob: finite(topLogprobs[place] ?? NEVER),
    })),
  };
}

/**
 * Log-probabilities beside the text: an entry leaves together with the text its bytes went into, so that the entries'
 * bytes joined are the answer. Tokens without text (end of generation) have none.
 */
export class LogprobTrail {
  readonly #tokenBytes: (token: number) => Uint8Array;
  readonly #held: (TrailEntry & { readonly start: number })[] = [];
  #end = 0;

  constructor(tokenBytes: (token: number) => Uint8Array) {
    this.#tokenBytes = tokenBytes;
  }

  add({ bytes, logprobs }: SampledToken): void {
    const start = this.#end;
    this.#end += bytes.length;
    if (bytes.length === 0 || logprobs === null) return;
    this.#held.push({ start, bytes, ...chancesOf(logprobs, this.#tokenBytes) });
  }

  /** Entries that lie wholly before this byte of the answer. */
  take(releasedBytes: number): TrailEntry[] {
    let count = 0;
    for (const { start, bytes } of this.#held) {
      if (start + bytes.length > releasedBytes) break;
      count += 1;
    }
    return this.#held.splice(0, count).map(({ bytes, logprob, top }) => ({ bytes, logprob, top }));
  }

  /** What is left; the entry that a stop string cuts keeps the bytes before the cut. */
  end(releasedBytes: number): TrailEntry[] {
    return this.#held
      .splice(0)
      .filter(({ start }) => start < releasedBytes)
      .map(({ start, bytes, logprob, top }) => ({ bytes: bytes.subarray(0, releasedBytes - start), logprob, top }));
  }
}
