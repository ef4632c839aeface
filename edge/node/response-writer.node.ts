import type { ServerResponse } from "node:http";
import type { ApiError } from "../../shared/errors/api-error.ts";
import { sseData } from "../../shared/sse/writer.ts";
import { errorHeaders } from "../http/render-error.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";
import { flatHeaders } from "./flat-headers.ts";

/** A writer whose answer can be ended from outside, by a server that goes away. */
export interface CuttableWriter extends ResponseWriter {
  /**
   * Ends an answer that is not complete: with `error` as its body, or as the last event of a stream, or by breaking the
   * connection inside a whole answer. Whoever writes is told that the client is gone. Resolves when the client's
   * connection has taken it or is lost.
   */
  cut(error: ApiError): Promise<void>;
}

/** How long a client may take over what was left to send when its answer ended. */
const LAST_BYTES_MS = 120_000;

/** Of a whole answer, so much may wait for its end, so that all of it goes out in one piece. */
const MOST_HELD_BYTES = 64 * 1_024;

interface Head {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
}

/** Writes onto Node's own response object: no web stream in between, and its buffer is the only one. */
export function nodeResponseWriter(outgoing: ServerResponse, lastBytesMs = LAST_BYTES_MS): CuttableWriter {
  return new NodeResponseWriter(outgoing, lastBytesMs);
}

class NodeResponseWriter implements CuttableWriter {
  readonly #outgoing: ServerResponse;
  readonly #lastBytesMs: number;
  #lastBytesTimer: NodeJS.Timeout | undefined;
  #started = false;
  #isStream = false;
  #wrote = false;
  /** Of a whole answer that has not gone out yet; it does so at its end, or when this turn of the event loop ends. */
  #head: Head | null = null;
  /** Whoever writes was told that there is no room. */
  #isFull = false;
  #held: (Uint8Array | string)[] = [];
  #heldBytes = 0;
  /** Ended or broken by us: what the client does from now on is of no interest. */
  #over = false;
  #clientGone = false;
  #onDrain: () => void = () => undefined;
  #onClosed: () => void = () => undefined;

  constructor(outgoing: ServerResponse, lastBytesMs: number) {
    this.#outgoing = outgoing;
    this.#lastBytesMs = lastBytesMs;
    outgoing.on("drain", () => {
      if (!this.#isFull) return;
      this.#isFull = false;
      this.#onDrain();
    });
    // A write may lose a race with the connection's end; `close` tells of it.
    outgoing.on("error", () => undefined);
    outgoing.once("close", () => {
      clearTimeout(this.#lastBytesTimer);
      this.#left();
    });
    if (outgoing.destroyed || outgoing.socket?.destroyed === true) this.#left();
  }

  get started(): boolean {
    return this.#started;
  }

  get closed(): boolean {
    return this.#clientGone;
  }

  start(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.#started) throw new Error("the response was started already");
    this.#started = true;
    this.#isStream = headers["content-type"]?.startsWith("text/event-stream") === true;
    if (this.#clientGone || this.#over) return;
    if (!this.#isStream) {
      this.#head = { status, headers };
      setImmediate(() => this.#letGo());
      return;
    }
    this.#outgoing.writeHead(status, headers);
    // Head and first bytes often come together and then share a packet; otherwise the head must not wait for them.
    process.nextTick(() => {
      if (!this.#wrote && !this.#over && !this.#clientGone) this.#outgoing.flushHeaders();
    });
  }

  write(chunk: Uint8Array | string): boolean {
    if (this.#clientGone || this.#over) return true;
    this.#wrote = true;
    if (this.#head !== null) {
      this.#held.push(chunk);
      this.#heldBytes += typeof chunk === "string" ? Buffer.byteLength(chunk) : chunk.length;
      return this.#told(this.#heldBytes <= MOST_HELD_BYTES || this.#letGo());
    }
    return this.#told(this.#outgoing.write(chunk));
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    if (this.#clientGone) return;
    if (this.#head === null) this.#outgoing.end();
    else this.#sendWhole(this.#head);
    // The system has all of it.
    if (this.#outgoing.writableLength === 0) return;
    // Nobody watches the client any more: one that reads nothing would keep its connection for ever.
    this.#lastBytesTimer = setTimeout(() => this.#outgoing.destroy(), this.#lastBytesMs).unref();
  }

  destroy(): void {
    if (this.#over) return;
    this.#over = true;
    this.#outgoing.destroy();
  }

  cut(error: ApiError): Promise<void> {
    if (this.#over || this.#clientGone) return Promise.resolve();
    this.#over = true;
    this.#clientGone = true;
    const outgoing = this.#outgoing;
    const gone = new Promise<void>((resolve) => {
      outgoing.once("finish", resolve);
      outgoing.once("close", resolve);
    });
    const body = JSON.stringify(error.toBody());
    if (!this.#started || this.#head !== null) outgoing.writeHead(error.status, errorHeaders(error)).end(body);
    else if (this.#isStream) outgoing.end(sseData(body));
    else outgoing.destroy();
    this.#onClosed();
    return gone;
  }

  onDrain(listener: () => void): void {
    this.#onDrain = listener;
  }

  onClosed(listener: () => void): void {
    this.#onClosed = listener;
    if (this.#clientGone) listener();
  }

  #told(hasRoom: boolean): boolean {
    if (!hasRoom) this.#isFull = true;
    return hasRoom;
  }

  /** Everything is there: its length can be told, and one write does. */
  #sendWhole({ status, headers }: Head): void {
    this.#head = null;
    const [first = ""] = this.#held;
    const body = this.#held.length < 2 ? first : Buffer.concat(this.#held.map((chunk) => Buffer.from(chunk)));
    const length = headers["content-length"] ?? String(this.#heldBytes);
    this.#outgoing.writeHead(status, flatHeaders(headers, "content-length", length)).end(body);
  }

  /** False: the client takes it more slowly than it comes. */
  #letGo(): boolean {
    if (this.#head === null || this.#over || this.#clientGone) return true;
    const { status, headers } = this.#head;
    this.#head = null;
    this.#outgoing.writeHead(status, headers);
    if (this.#held.length === 0) this.#outgoing.flushHeaders();
    let hasRoom = true;
    for (const chunk of this.#held) hasRoom = this.#outgoing.write(chunk);
    this.#held = [];
    return hasRoom;
  }

  #left(): void {
    if (this.#over || this.#clientGone) return;
    this.#clientGone = true;
    this.#onClosed();
  }
}
