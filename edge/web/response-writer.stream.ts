import type { ResponseWriter } from "../ports/response-writer.ts";

/** Bytes that may wait for a slow client before the writer asks to hold back. */
const HIGH_WATER_MARK_BYTES = 64 * 1_024;
/** Never seen by anybody: the client is gone. */
const CLIENT_CLOSED_STATUS = 499;

export interface StreamResponse {
  readonly writer: ResponseWriter;
  /** Resolves when the writer is started, or broken before that. */
  readonly response: Promise<Response>;
}

/**
 * A writer whose answer is a web Response. The client's leaving shows as the cancel of its body; `signal` is the
 * request's own, for runtimes on which it fires earlier or for an answer that has not begun.
 */
export function streamResponseWriter(signal?: AbortSignal): StreamResponse {
  const writer = new StreamResponseWriter(signal);
  return { writer, response: writer.response };
}

class StreamResponseWriter implements ResponseWriter {
  #respond: (response: Response) => void = () => undefined;
  readonly response = new Promise<Response>((resolve) => {
    this.#respond = resolve;
  });
  readonly #encoder = new TextEncoder();
  #controller: ReadableStreamDefaultController<Uint8Array> | null = null;
  #started = false;
  #over = false;
  #clientGone = false;
  #blocked = false;
  #onDrain: () => void = () => undefined;
  #onClosed: () => void = () => undefined;

  constructor(signal: AbortSignal | undefined) {
    if (signal?.aborted === true) this.#left();
    else signal?.addEventListener("abort", () => this.#left(), { once: true });
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
    const body = new ReadableStream<Uint8Array>(
      {
        start: (controller) => {
          this.#controller = controller;
        },
        pull: () => this.#pulled(),
        cancel: () => this.#left(),
      },
      { highWaterMark: HIGH_WATER_MARK_BYTES, size: (chunk) => chunk.byteLength },
    );
    this.#respond(new Response(body, { status, headers }));
  }

  write(chunk: Uint8Array | string): boolean {
    if (this.#clientGone || this.#over || this.#controller === null) return true;
    // The bytes are read later, when their owner may have used the buffer again.
    this.#controller.enqueue(typeof chunk === "string" ? this.#encoder.encode(chunk) : new Uint8Array(chunk));
    this.#blocked = (this.#controller.desiredSize ?? 0) <= 0;
    return !this.#blocked;
  }

  end(): void {
    if (this.#over) return;
    this.#over = true;
    if (!this.#clientGone) this.#controller?.close();
  }

  destroy(): void {
    if (this.#over) return;
    this.#over = true;
    if (this.#controller === null) this.#respond(new Response(null, { status: CLIENT_CLOSED_STATUS }));
    else if (!this.#clientGone) this.#controller.error(new Error("the answer broke off"));
  }

  onDrain(listener: () => void): void {
    this.#onDrain = listener;
  }

  onClosed(listener: () => void): void {
    this.#onClosed = listener;
    if (this.#clientGone) listener();
  }

  #pulled(): void {
    if (!this.#blocked || this.#over) return;
    this.#blocked = false;
    this.#onDrain();
  }

  #left(): void {
    if (this.#over || this.#clientGone) return;
    this.#clientGone = true;
    this.#onClosed();
  }
}
