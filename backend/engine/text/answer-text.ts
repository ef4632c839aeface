import { releasableBytes } from "./stop-holdback.ts";

/**
 * Turns the bytes of sampled tokens into text that can be sent at once. A character is never split, bytes that may
 * belong to a stop string are held back, and an incomplete character at the end is dropped. Streams and whole answers
 * both go through here, so they are equal.
 */
export class AnswerText {
  readonly #stops: readonly Uint8Array[];
  // `stream: true` on every call keeps the bytes of an incomplete character; they are never flushed.
  readonly #decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  #pending: Uint8Array = new Uint8Array(0);
  #released = 0;

  constructor(stopStrings: readonly string[]) {
    const encoder = new TextEncoder();
    this.#stops = stopStrings.map((stop) => encoder.encode(stop));
  }

  /** The text that became certain with these bytes; often empty. */
  push(bytes: Uint8Array): string {
    this.#pending = joined(this.#pending, bytes);
    return this.#release(releasableBytes(this.#pending, this.#stops));
  }

  /** The rest, cut where a stop string begins (`textEndBytes` of the whole answer, -1 for no cut). */
  end(textEndBytes: number): string {
    const rest = textEndBytes < 0 ? this.#pending.length : Math.max(0, textEndBytes - this.#released);
    return this.#release(Math.min(rest, this.#pending.length));
  }

  /** Bytes of the answer handed out so far, those of an incomplete character included. */
  get releasedBytes(): number {
    return this.#released;
  }

  #release(count: number): string {
    const bytes = this.#pending.subarray(0, count);
    this.#pending = this.#pending.subarray(count);
    this.#released += count;
    return this.#decoder.decode(bytes, { stream: true });
  }
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array {
  if (a.length === 0) return b;
  const all = new Uint8Array(a.length + b.length);
  all.set(a);
  all.set(b, a.length);
  return all;
}
