import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamHandler,
  UpstreamRequest,
} from "../ports/upstream.ts";

/**
 * Requests over the runtime's `fetch`, for runtimes that have nothing closer to the socket. It cannot tell dialling
 * from waiting, so `dialTimeoutMs` has no effect here: the caller's limit on headers covers both.
 */
export class FetchUpstream implements Upstream {
  readonly #open = new Set<FetchExchange>();

  open(request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange {
    const exchange = new FetchExchange(handler);
    this.#open.add(exchange);
    exchange
      .run(request)
      .catch(() => undefined)
      .finally(() => this.#open.delete(exchange));
    return exchange;
  }

  close(): Promise<void> {
    for (const exchange of this.#open) exchange.abort();
    return Promise.resolve();
  }
}

class FetchExchange implements UpstreamExchange {
  readonly #handler: UpstreamHandler;
  /** `fetch` does not tell when it writes. */
  readonly sent = true;
  readonly #abortion = new AbortController();
  #over = false;
  #goOn: (() => void) | null = null;

  constructor(handler: UpstreamHandler) {
    this.#handler = handler;
  }

  resume(): void {
    this.#goOn?.();
    this.#goOn = null;
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#abortion.abort();
    this.resume();
  }

  async run(request: UpstreamRequest): Promise<void> {
    let response: Response;
    try {
      response = await fetch(request.url, {
        method: request.method,
        headers: { ...request.headers, "accept-encoding": "identity" },
        body: request.body === null ? null : new Uint8Array(request.body),
        redirect: "manual",
        signal: this.#abortion.signal,
      });
    } catch (thrown) {
      this.#fail(failureBeforeHeaders(thrown), thrown);
      return;
    }
    if (this.#isOver()) return;
    this.#handler.onHeaders(response.status, headersOf(response));
    if (response.body !== null) await this.#read(response.body.getReader());
    if (this.#isOver()) return;
    this.#over = true;
    this.#handler.onEnd();
  }

  async #read(reader: ReadableStreamDefaultReader<Uint8Array>): Promise<void> {
    while (!this.#isOver()) {
      let step: { done: boolean; value?: Uint8Array | undefined };
      try {
        step = await reader.read();
      } catch (thrown) {
        this.#fail("closed_in_body", thrown);
        return;
      }
      if (step.done || step.value === undefined || this.#isOver()) break;
      if (!this.#handler.onData(step.value) && !this.#isOver()) await this.#room();
    }
  }

  /** Until `resume`: what is not read holds the sender back. */
  #room(): Promise<void> {
    return new Promise((resolve) => {
      this.#goOn = resolve;
    });
  }

  #fail(failure: UpstreamFailure, cause: unknown): void {
    if (this.#over) return;
    this.#over = true;
    this.#handler.onFailure(failure, cause);
  }

  #isOver(): boolean {
    return this.#over;
  }
}

/** What `fetch` inflated has neither the length nor the encoding any more that its headers name. */
function headersOf(response: Response): Record<string, string> {
  const headers = Object.fromEntries(response.headers);
  if (headers["content-encoding"] !== undefined) {
    delete headers["content-encoding"];
    delete headers["content-length"];
  }
  return headers;
}

const NEVER_CONNECTED =
  /ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|CERT|refused|unreachable|could not connect|DNS/i;

/** Runtimes name the reason in the message or in a cause's code; what says neither may have been sent. */
function failureBeforeHeaders(thrown: unknown): UpstreamFailure {
  let at: unknown = thrown;
  for (let depth = 0; at instanceof Error && depth < 4; depth++) {
    const code = "code" in at ? String(at.code) : "";
    if (/CONNECT_TIMEOUT/.test(code)) return "dial_timeout";
    if (NEVER_CONNECTED.test(`${code} ${at.message}`)) return "unreachable";
    at = at.cause;
  }
  return "closed_before_headers";
}
