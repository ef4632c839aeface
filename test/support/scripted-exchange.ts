import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamHandler,
  UpstreamRequest,
} from "../../edge/ports/upstream.ts";

/** One request that the edge sent; the test plays the machine, synchronously. */
export class FakeExchange implements UpstreamExchange {
  readonly request: UpstreamRequest;
  readonly #handler: UpstreamHandler;
  aborted = false;
  /** It has ended or failed. */
  over = false;
  sent = true;
  resumed = 0;
  /** What the handler said to the last data: whether it has room. */
  room = true;

  constructor(request: UpstreamRequest, handler: UpstreamHandler) {
    this.request = request;
    this.#handler = handler;
  }

  get bodyText(): string {
    return new TextDecoder().decode(this.request.body ?? new Uint8Array());
  }

  resume(): void {
    this.resumed++;
    this.room = true;
  }

  abort(): void {
    this.aborted = true;
  }

  headers(status: number, headers: Readonly<Record<string, string>> = {}): this {
    if (!this.aborted) this.#handler.onHeaders(status, headers);
    return this;
  }

  stream(headers: Readonly<Record<string, string>> = {}): this {
    return this.headers(200, { "content-type": "text/event-stream", ...headers });
  }

  bytes(chunk: Uint8Array): this {
    if (!this.aborted) this.room = this.#handler.onData(chunk);
    return this;
  }

  text(text: string): this {
    return this.bytes(new TextEncoder().encode(text));
  }

  data(...values: readonly unknown[]): this {
    for (const value of values) this.text(`data: ${typeof value === "string" ? value : JSON.stringify(value)}\n\n`);
    return this;
  }

  end(): void {
    if (!this.aborted && !this.over) {
      this.over = true;
      this.#handler.onEnd();
    }
  }

  fail(failure: UpstreamFailure): void {
    if (!this.aborted && !this.over) {
      this.over = true;
      this.#handler.onFailure(failure, new Error(failure));
    }
  }
}

export class FakeUpstream implements Upstream {
  readonly exchanges: FakeExchange[] = [];

  open(request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange {
    const exchange = new FakeExchange(request, handler);
    this.exchanges.push(exchange);
    return exchange;
  }

  close(): Promise<void> {
    return Promise.resolve();
  }
}

export const delta = (content: string): Record<string, unknown> => ({
  id: "chatcmpl-1",
  object: "chat.completion.chunk",
  created: 1,
  model: "m",
  choices: [{ index: 0, delta: { content }, finish_reason: null }],
});
export const finish = (reason: string): Record<string, unknown> => ({
  ...delta(""),
  choices: [{ index: 0, delta: {}, finish_reason: reason }],
});
export const usageChunk = (prompt: number, completion: number, cached = 0): Record<string, unknown> => ({
  ...delta(""),
  choices: [],
  usage: {
    prompt_tokens: prompt,
    completion_tokens: completion,
    total_tokens: prompt + completion,
    prompt_tokens_details: { cached_tokens: cached },
  },
});
