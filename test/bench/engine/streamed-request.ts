import { performance } from "node:perf_hooks";
import type { Dispatcher } from "undici";
import type { ServerProcess } from "./server-process.ts";

export interface Streamed {
  /** From the request's leaving to the first text that is not empty. */
  readonly firstTextMs: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

export interface StreamedRequest {
  readonly path: string;
  readonly body: object;
  /** Leaves after so many bytes of the answer; then the counts are 0. */
  readonly abortAfterBytes?: number;
}

/** As much of an answer's end as holds its usage. */
const TAIL_CHARACTERS = 8_192;
/** The first text of a chat delta or of a completion. */
const TEXT = /"(?:content|text)":"(?!")/u;

/**
 * Sends a request and reads its stream to the end. Reads as little of it as it can, since the client runs on the
 * cores that are measured. Rejects on any answer but 200, and where the stream ends without usage.
 */
export function streamedRequest(server: ServerProcess, request: StreamedRequest): Promise<Streamed> {
  return new Promise((resolve, reject) => {
    const reader = new StreamReader(server.name, request.abortAfterBytes ?? Infinity, resolve, reject);
    const headers = { "content-type": "application/json" };
    const body = JSON.stringify({ ...request.body, stream: true, stream_options: { include_usage: true } });
    server.pool.dispatch({ path: request.path, method: "POST", headers, body }, reader);
  });
}

class StreamReader implements Dispatcher.DispatchHandler {
  readonly #name: string;
  readonly #abortAfterBytes: number;
  readonly #resolve: (streamed: Streamed) => void;
  readonly #reject: (error: Error) => void;
  #startMs = performance.now();
  #firstTextMs = -1;
  #status = 0;
  #bytes = 0;
  #tail = "";

  constructor(
    name: string,
    abortAfterBytes: number,
    resolve: (streamed: Streamed) => void,
    reject: (error: Error) => void,
  ) {
    this.#name = name;
    this.#abortAfterBytes = abortAfterBytes;
    this.#resolve = resolve;
    this.#reject = reject;
  }

  onRequestStart(): void {
    this.#startMs = performance.now();
  }

  onResponseStart(_controller: Dispatcher.DispatchController, status: number): void {
    this.#status = status;
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Buffer): void {
    this.#bytes += chunk.length;
    const text = chunk.toString("latin1");
    if (this.#firstTextMs < 0 && TEXT.test(text)) this.#firstTextMs = performance.now() - this.#startMs;
    this.#tail = (chunk.length >= TAIL_CHARACTERS ? text : this.#tail + text).slice(-TAIL_CHARACTERS);
    if (this.#bytes >= this.#abortAfterBytes) controller.abort(new Error("enough"));
  }

  onResponseEnd(): void {
    const count = (name: string) => Number(new RegExp(`"${name}":(\\d+)`, "u").exec(this.#tail)?.[1] ?? -1);
    const completionTokens = count("completion_tokens");
    if (this.#status !== 200 || completionTokens < 0) {
      this.#reject(new Error(`${this.#name} answered ${this.#status}: ${this.#tail.slice(-500)}`));
      return;
    }
    this.#resolve({ firstTextMs: this.#firstTextMs, promptTokens: count("prompt_tokens"), completionTokens });
  }

  onResponseError(_controller: Dispatcher.DispatchController, error: Error): void {
    if (this.#bytes >= this.#abortAfterBytes) {
      this.#resolve({ firstTextMs: this.#firstTextMs, promptTokens: 0, completionTokens: 0 });
    } else this.#reject(error);
  }
}
