import { joinBytes } from "../../../shared/join-bytes.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import type { ResponseWriter } from "../../ports/response-writer.ts";

export interface SharedAnswerOptions {
  readonly clock: Clock;
  /** Answers that are larger are passed on to those who wait for them, and not kept. */
  readonly maxBytes: number;
  /** How long the answer goes on being made when nobody waits for it any more, milliseconds. */
  readonly lingerMs: () => number;
}

/** How a follower's wait ended: it has its answer, or there is none for it and it may ask anew. */
export type Followed = "answered" | "again" | "not_kept";

export interface RecordedAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  /** Null where it was too large. */
  readonly body: Uint8Array | null;
}

interface Follower {
  readonly writer: ResponseWriter;
  readonly isFirst: boolean;
  readonly headers: Readonly<Record<string, string>>;
  readonly resolve: (followed: Followed) => void;
  next: number;
  started: boolean;
  blocked: boolean;
}

type End = "end" | "destroy";

/** Bytes that may wait for the slowest client of an answer that is not kept. */
const HIGH_WATER_BYTES = 64 * 1_024;

/**
 * One answer that several clients get: written once by dispatch, recorded as far as it may be kept, and given to every
 * follower from its first byte, at the follower's own pace. An error before the first byte is the first client's alone;
 * the others ask anew.
 */
export class SharedAnswer implements ResponseWriter {
  readonly #options: SharedAnswerOptions;
  readonly #followers = new Set<Follower>();
  #chunks: Uint8Array[] = [];
  /** The place of the first chunk that is still here. */
  #firstChunk = 0;
  #bytes = 0;
  #heldBytes = 0;
  #head: { readonly status: number; readonly headers: Readonly<Record<string, string>> } | null = null;
  #ended: End | null = null;
  #isTooLarge = false;
  #isDeserted = false;
  #cancelLinger: (() => void) | null = null;
  #onDrain: () => void = () => undefined;
  #onClosed: () => void = () => undefined;

  constructor(options: SharedAnswerOptions) {
    this.#options = options;
  }

  /** Gives the answer to one more client. `headers` are its own, and win over those of the answer. */
  follow(
    writer: ResponseWriter,
    options: { readonly isFirst: boolean; readonly headers: Readonly<Record<string, string>> },
  ): Promise<Followed> {
    if (this.#isTooLarge) return Promise.resolve("not_kept");
    const isLost = this.#isError() || this.#isDeserted || (this.#ended !== null && this.recorded === null);
    if (isLost && !options.isFirst) return Promise.resolve("again");
    this.#cancelLinger?.();
    this.#cancelLinger = null;
    return new Promise((resolve) => {
      const follower: Follower = { writer, ...options, resolve, next: 0, started: false, blocked: false };
      this.#followers.add(follower);
      writer.onDrain(() => {
        follower.blocked = false;
        this.#pump(follower);
        this.#trim();
      });
      writer.onClosed(() => this.#leave(follower, "answered"));
      if (this.#followers.has(follower)) this.#pump(follower);
    });
  }

  /** Nobody will write it: whoever waits asks anew. */
  withdraw(): void {
    this.#isDeserted = true;
    for (const follower of this.#followers) this.#leave(follower, "again");
  }

  /** What was written, once it has ended whole; null where it broke off or is an error. */
  get recorded(): RecordedAnswer | null {
    const head = this.#head;
    if (head === null || this.#ended !== "end" || this.#isError()) return null;
    if (this.#isTooLarge) return { ...head, body: null };
    const body = joinBytes(this.#chunks);
    // A stream that ends without its mark ended with an error.
    return isStream(head.headers) && !endsWithMark(body) ? null : { ...head, body };
  }

  get started(): boolean {
    return this.#head !== null;
  }

  get closed(): boolean {
    return this.#isDeserted;
  }

  start(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.#head !== null) throw new Error("the response was started already");
    this.#head = { status, headers };
    for (const follower of this.#followers) {
      if (this.#isError() && !follower.isFirst) this.#leave(follower, "again");
      else this.#pump(follower);
    }
  }

  write(chunk: Uint8Array | string): boolean {
    if (this.#ended !== null || this.#isDeserted) return true;
    const bytes = typeof chunk === "string" ? new TextEncoder().encode(chunk) : chunk.slice();
    this.#chunks.push(bytes);
    this.#bytes += bytes.length;
    this.#heldBytes += bytes.length;
    if (this.#bytes > this.#options.maxBytes) this.#isTooLarge = true;
    for (const follower of this.#followers) this.#pump(follower);
    this.#trim();
    return this.#hasRoom();
  }

  end(): void {
    this.#finish("end");
  }

  destroy(): void {
    this.#finish("destroy");
  }

  onDrain(listener: () => void): void {
    this.#onDrain = listener;
  }

  onClosed(listener: () => void): void {
    this.#onClosed = listener;
    if (this.#isDeserted) listener();
  }

  #isError(): boolean {
    return (this.#head?.status ?? 200) >= 400;
  }

  #hasRoom(): boolean {
    return !this.#isTooLarge || this.#heldBytes <= HIGH_WATER_BYTES;
  }

  #finish(end: End): void {
    if (this.#ended !== null) return;
    this.#ended = end;
    this.#cancelLinger?.();
    for (const follower of this.#followers) {
      if (end === "destroy" && !follower.started && !follower.isFirst) this.#leave(follower, "again");
      else this.#pump(follower);
    }
  }

  /** Writes what this follower has not got yet, as far as it takes it. */
  #pump(follower: Follower): void {
    const { writer, headers } = follower;
    if (this.#head !== null && !follower.started) {
      follower.started = true;
      writer.start(this.#head.status, { ...this.#head.headers, ...headers });
    }
    // The rest of an answer that has ended is the writer's to hold, which gives up a client that takes nothing.
    while (!follower.blocked || this.#ended !== null) {
      const chunk = this.#chunks[follower.next - this.#firstChunk];
      if (chunk === undefined) break;
      follower.next += 1;
      follower.blocked = !writer.write(chunk);
    }
    if (this.#ended === null) return;
    if (this.#ended === "end") writer.end();
    else writer.destroy();
    this.#leave(follower, "answered");
  }

  /** What is not kept is let go as soon as every client has it. */
  #trim(): void {
    if (!this.#isTooLarge) return;
    const slowest = Math.min(...[...this.#followers].map(({ next }) => next), this.#firstChunk + this.#chunks.length);
    const wasFull = !this.#hasRoom();
    for (; this.#firstChunk < slowest; this.#firstChunk += 1) this.#heldBytes -= this.#chunks.shift()?.length ?? 0;
    if (wasFull && this.#hasRoom()) this.#onDrain();
  }

  #leave(follower: Follower, followed: Followed): void {
    if (!this.#followers.delete(follower)) return;
    follower.resolve(followed);
    if (this.#followers.size > 0 || this.#ended !== null || this.#isDeserted) {
      this.#trim();
      return;
    }
    const lingerMs = this.#isTooLarge ? 0 : this.#options.lingerMs();
    if (lingerMs <= 0) this.#desert();
    else this.#cancelLinger = this.#options.clock.after(lingerMs, () => this.#desert());
  }

  #desert(): void {
    if (this.#ended !== null || this.#isDeserted) return;
    this.#isDeserted = true;
    this.#onClosed();
  }
}

const END_MARK = new TextEncoder().encode("data: [DONE]\n\n");

function endsWithMark(body: Uint8Array): boolean {
  const from = body.length - END_MARK.length;
  return from >= 0 && END_MARK.every((byte, at) => body[from + at] === byte);
}

function isStream(headers: Readonly<Record<string, string>>): boolean {
  const [, type = ""] = Object.entries(headers).find(([name]) => name.toLowerCase() === "content-type") ?? [];
  return type.startsWith("text/event-stream");
}
