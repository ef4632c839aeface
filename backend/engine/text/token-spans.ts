/** Which part of an answer's text each token wrote, to count those of a part. */
export class TokenSpans {
  // As AnswerText decodes: an incomplete character waits for its last byte.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  /** Where the text of each token ends, in UTF-16 units. */
  readonly #ends: number[] = [];

  add(bytes: Uint8Array): void {
    this.#ends.push((this.#ends.at(-1) ?? 0) + this.#decoder.decode(bytes, { stream: true }).length);
  }

  /** Tokens that wrote something of [start, end), or stand there with bytes of a character that others complete. */
  countWithin({ start, end }: TextSpan): number {
    let from = 0;
    let count = 0;
    for (const to of this.#ends) {
      if (from < end && (to > start || (to === from && from === start))) count += 1;
      from = to;
    }
    return count;
  }
}

/** Half open, in UTF-16 units. */
export interface TextSpan {
  readonly start: number;
  readonly end: number;
}

/**
 * Where the reasoning of an answer stands in its text, the white space between its marks included. `readReasoning` is
 * what a reader takes for reasoning in a beginning of the text. Null where it is not one piece of the text.
 */
export function reasoningSpan(
  text: string,
  reasoning: string,
  readReasoning: (beginning: string) => string,
): TextSpan | null {
  const wanted = reasoning.trim();
  if (wanted === "") return { start: 0, end: 0 };
  const isWhole = (length: number): boolean => readReasoning(text.slice(0, length)).trim() === wanted;
  const first = text.indexOf(wanted);
  if (first < 0) return null;
  let start = first;
  if (!isWhole(first + wanted.length)) {
    // The words also stand in a mark before them, or a reader waits for more before it gives the last of them.
    const read = least(text.length, isWhole);
    if (!isWhole(read) || read < wanted.length) return null;
    start = text.lastIndexOf(wanted, read - wanted.length);
  }
  const end = start + wanted.length;
  const before = text.slice(0, start);
  const after = text.slice(end);
  return { start: before.trimEnd().length, end: end + after.length - after.trimStart().length };
}

/** The least number up to `most` from which on something holds. */
function least(most: number, holds: (number: number) => boolean): number {
  let [low, high] = [0, most];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}
