import type { ServerResponse } from "node:http";
import type { ResponseWriter } from "../ports/response-writer.ts";

/** Writes onto Node's own response object: no web stream in between, and its buffer is the only one. */
export function nodeResponseWriter(outgoing: ServerResponse): ResponseWriter {
  return new NodeResponseWriter(outgoing);
}

class NodeResponseWriter implements ResponseWriter {
  readonly #outgoing: ServerResponse;
  #started = false;
  #wrote = false;
  /** Ended or broken by us: what the client does from now on is of no interest. */
  #over = false;
  #clientGone = false;
  #onDrain: () => void = () => undefined;
  #onClosed: () => void = () => undefined;

  constructor(outgoing: ServerResponse) {
    this.#outgoing = outgoing;
    outgoing.on("drain", () => this.#onDrain());
    // A write may lose a race with the connection's end; `close` tells of it.
    outgoing.on("error", () => undefined);
    outgoing.once("close", () => this.#left());
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
    if (this.#clientGone || this.#over) return;
    this.#outgoing.writeHead(status, headers);
    // Head and first bytes often come together and then share a packet; otherwise the head must not wait for them.
    process.nextTick(() => {
      if (!this.#wrote && !this.#over && !this.#clientGone) this.#outgoing.flushHeaders();
    });
  }

  write(chunk: Uint8Array | string): boolean {
    if (this.#clientGone || this.#over) return true;
    this.#wrote = true;
    return this.#outgoing.write(chunk);
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    if (!this.#clientGone) this.#outgoing.end();
  }

  destroy(): void {
    if (this.#over) return;
    this.#over = true;
    this.#outgoing.destroy();
  }

  onDrain(listener: () => void): void {
    this.#onDrain = listener;
  }

  onClosed(listener: () => void): void {
    this.#onClosed = listener;
    if (this.#clientGone) listener();
  }

  #left(): void {
    if (this.#over || this.#clientGone) return;
    this.#clientGone = true;
    this.#onClosed();
  }
}
