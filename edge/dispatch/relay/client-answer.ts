import { SSE_HEADERS, sseComment, sseData } from "../../../shared/sse/writer.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import type { ResponseWriter } from "../../ports/response-writer.ts";
import type { AnswerSink } from "./answer-sink.ts";
import { LazyTimer } from "./lazy-timer.ts";
import { refusalHeaders, type Refusal } from "./refusal.ts";

export interface ClientAnswerOptions {
  readonly writer: ResponseWriter;
  readonly clock: Clock;
  /** The caller asked for a stream. */
  readonly isStream: boolean;
  readonly keepAliveMs: number;
}

/**
 * The caller's side of one request, over all attempts: collects headers until the first byte, keeps a waiting stream
 * alive with comments, and knows how an error must be told at every stage.
 */
export class ClientAnswer implements AnswerSink {
  readonly #writer: ResponseWriter;
  readonly #isStream: boolean;
  readonly #keepAliveMs: number;
  readonly #keepAlive: LazyTimer;
  readonly #headers: Record<string, string> = {};
  #startedAs: "stream" | "whole" | null = null;
  #ended = false;
  #blocked = false;
  /** Told when a slow client has room again. */
  onRoom: () => void = () => undefined;

  constructor({ writer, clock, isStream, keepAliveMs }: ClientAnswerOptions) {
    this.#writer = writer;
    this.#isStream = isStream;
    this.#keepAliveMs = keepAliveMs;
    this.#keepAlive = new LazyTimer(clock, () => this.#ping());
    writer.onDrain(() => {
      this.#blocked = false;
      this.onRoom();
    });
    if (isStream) this.#keepAlive.set(keepAliveMs);
  }

  get startedAs(): "stream" | "whole" | null {
    return this.#startedAs;
  }

  /** No effect once the head has gone out. */
  setHeaders(headers: Readonly<Record<string, string>>): void {
    if (this.#startedAs === null) Object.assign(this.#headers, headers);
  }

  startStream(): void {
    if (this.#startedAs !== null) return;
    this.#startedAs = "stream";
    this.#writer.start(200, { ...SSE_HEADERS, ...this.#headers });
  }

  startWhole(status: number, headers: Readonly<Record<string, string>>): void {
    this.#startedAs = "whole";
    this.#keepAlive.stop();
    this.#writer.start(status, Object.assign(this.#headers, headers));
  }

  /** False: hold back until `onRoom`. */
  write(chunk: Uint8Array | string): boolean {
    if (this.#startedAs === "stream") this.#keepAlive.set(this.#keepAliveMs);
    this.#blocked = !this.#writer.write(chunk);
    return !this.#blocked;
  }

  finish(tail: string): void {
    if (this.#ended) return;
    this.#close();
    if (tail !== "") this.#writer.write(tail);
    this.#writer.end();
  }

  /**
   * Before the first byte a status and a body; inside a stream an event, after which it closes without an end mark;
   * inside a whole answer the connection breaks, so that nobody takes the half for the whole.
   */
  fail(refusal: Refusal): void {
    if (this.#ended) return;
    this.#close();
    switch (this.#startedAs) {
      case null: {
        const body = JSON.stringify(refusal.body);
        this.#writer.start(refusal.status, { ...this.#headers, ...refusalHeaders(refusal) });
        this.#writer.write(body);
        this.#writer.end();
        return;
      }
      case "stream":
        this.#writer.write(sseData(JSON.stringify(refusal.body)));
        this.#writer.end();
        return;
      case "whole":
        this.#writer.destroy();
        return;
      default:
        this.#startedAs satisfies never;
    }
  }

  /** The client is gone, or takes nothing any more: nothing is said. */
  drop(): void {
    if (this.#ended) return;
    this.#close();
    this.#writer.destroy();
  }

  /** For a stream that waits. What a slow client has no room for is left out. */
  comment(text: string): void {
    if (this.#ended || this.#writer.closed || !this.#isStream || this.#startedAs === "whole") return;
    this.startStream();
    if (!this.#blocked) this.write(sseComment(text));
  }

  #close(): void {
    this.#ended = true;
    this.#keepAlive.dispose();
  }

  #ping(): void {
    if (this.#ended || this.#writer.closed || !this.#isStream) return;
    this.startStream();
    if (this.#blocked) this.#keepAlive.set(this.#keepAliveMs);
    else this.write(sseComment(""));
  }
}
