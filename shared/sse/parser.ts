/** One dispatched server-sent event. `event` is empty unless the stream named one. */
export interface SseEvent {
  readonly event: string;
  readonly data: string;
}

export interface SseParserOptions {
  /** Longest event, in UTF-16 units of its data; a longer one throws SseEventTooLarge. */
  readonly maxEventLength: number;
}

export class SseEventTooLarge extends Error {
  constructor(limit: number) {
    super(`A server-sent event is longer than ${limit} characters.`);
    this.name = "SseEventTooLarge";
  }
}

const LF = 10;
const CR = 13;

/**
 * Reads `text/event-stream` as the HTML standard defines it, whatever the chunk borders: LF, CRLF and CR line ends,
 * one leading byte order mark, comments, several data lines, no space after the colon. Text comes from a streaming
 * TextDecoder, so characters are never cut. Events without data are not dispatched; ids and retry hints are ignored.
 * Work is linear in the input: nothing is scanned twice.
 */
export class SseParser {
  readonly #maxEventLength: number;
  #line = "";
  #lastWasCr = false;
  #atStart = true;
  #event = "";
  #data: string | null = null;

  constructor(options: SseParserOptions) {
    this.#maxEventLength = options.maxEventLength;
  }

  /** Text is left that no blank line has ended: the stream was cut inside an event. */
  get unfinished(): boolean {
    return this.#line !== "" || this.#data !== null;
  }

  push(text: string): SseEvent[] {
    const events: SseEvent[] = [];
    let from = 0;
    if (this.#atStart && text.length > 0) {
      this.#atStart = false;
      if (text.charCodeAt(0) === 0xfeff) from = 1;
    }
    for (let at = from; at < text.length; at++) {
      const code = text.charCodeAt(at);
      if (code === LF && this.#lastWasCr) {
        this.#lastWasCr = false;
        from = at + 1;
        continue;
      }
      this.#lastWasCr = false;
      if (code !== LF && code !== CR) continue;
      this.#lastWasCr = code === CR;
      const line = this.#line === "" ? text.slice(from, at) : this.#line + text.slice(from, at);
      this.#line = "";
      from = at + 1;
      this.#takeLine(line, events);
    }
    if (from < text.length) {
      this.#line += text.slice(from);
      this.#checkLength(this.#line.length + (this.#data?.length ?? 0));
    }
    return events;
  }

  #takeLine(line: string, events: SseEvent[]): void {
    if (line === "") {
      if (this.#data !== null) events.push({ event: this.#event, data: this.#data });
      this.#data = null;
      this.#event = "";
      return;
    }
    const colon = line.indexOf(":");
    // A comment.
    if (colon === 0) return;
    const field = colon === -1 ? line : line.slice(0, colon);
    let value = colon === -1 ? "" : line.slice(colon + 1);
    if (value.startsWith(" ")) value = value.slice(1);
    if (field === "data") {
      this.#data = this.#data === null ? value : `${this.#data}\n${value}`;
      this.#checkLength(this.#data.length);
    } else if (field === "event") {
      this.#event = value;
    }
  }

  #checkLength(length: number): void {
    if (length > this.#maxEventLength) throw new SseEventTooLarge(this.#maxEventLength);
  }
}
