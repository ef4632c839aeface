const LF = 10;
const DATA_OBJECT = Buffer.from("data: {");
/** Held back at most; an event longer than this is passed on in parts. */
const MAX_HELD_BYTES = 2 ** 20;

/** Bytes that may be passed on now, and how many stream events begin in them. */
export interface WholeEvents {
  readonly bytes: Uint8Array;
  readonly events: number;
}

/**
 * Passes an engine's event stream on in whole events only, so that an error event can follow wherever the engine
 * died. Engines write one event at a time, so what is held back is empty nearly always.
 */
export class WholeEventFilter {
  #held: Buffer = Buffer.alloc(0);

  push(chunk: Buffer): WholeEvents {
    const all = this.#held.length === 0 ? chunk : Buffer.concat([this.#held, chunk]);
    let end = endOfLastEvent(all);
    if (end === 0 && all.length > MAX_HELD_BYTES) end = all.length;
    const bytes = all.subarray(0, end);
    this.#held = all.subarray(end);
    return { bytes, events: countOf(bytes) };
  }

  /** What no blank line has ended: passed on only when the engine closed the stream properly. */
  rest(): Uint8Array {
    const rest = this.#held;
    this.#held = Buffer.alloc(0);
    return rest;
  }
}

function endOfLastEvent(bytes: Buffer): number {
  for (let at = bytes.length - 1; at > 0; at--) if (bytes[at] === LF && bytes[at - 1] === LF) return at + 1;
  return 0;
}

/** Only at the start of a line: an answer may well contain those letters. */
function countOf(bytes: Buffer): number {
  let count = 0;
  for (let at = bytes.indexOf(DATA_OBJECT); at !== -1; at = bytes.indexOf(DATA_OBJECT, at + DATA_OBJECT.length))
    if (at === 0 || bytes[at - 1] === LF) count++;
  return count;
}
