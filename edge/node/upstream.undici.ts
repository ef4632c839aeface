import type { Dispatcher } from "undici";
import Agent from "undici/lib/dispatcher/agent.js";
import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamHandler,
  UpstreamRequest,
} from "../ports/upstream.ts";
import { flatHeaders } from "./flat-headers.ts";

interface Address {
  readonly origin: string;
  readonly path: string;
}

/** Every machine has three routes, and a fleet fewer machines than this; paths of SAEs come beside them. */
const MOST_ADDRESSES = 1_024;

/**
 * Requests over undici's connection pools, with its raw handler: bytes go from the socket to the handler without a
 * stream object in between, and a pause reaches the socket. Bodies arrive as they were sent.
 */
export class UndiciUpstream implements Upstream {
  /** One agent for each dial limit: that of requests, and that of metrics pages. */
  readonly #agents = new Map<number, Agent>();

  readonly #addresses = new Map<string, Address>();

  open(request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange {
    const exchange = new UndiciExchange(handler);
    const { origin, path } = this.#addressOf(request.url);
    this.#agentFor(request.dialTimeoutMs).dispatch(
      {
        origin,
        path,
        method: request.method,
        headers: flatHeaders(request.headers, "accept-encoding", "identity"),
        body: request.body,
      },
      exchange,
    );
    return exchange;
  }

  async close(): Promise<void> {
    const agents = [...this.#agents.values()];
    this.#agents.clear();
    await Promise.all(agents.map((agent) => agent.destroy()));
  }

  #addressOf(url: string): Address {
    let address = this.#addresses.get(url);
    if (address === undefined) {
      const { origin, pathname, search } = new URL(url);
      address = { origin, path: pathname + search };
      if (this.#addresses.size === MOST_ADDRESSES) this.#addresses.clear();
      this.#addresses.set(url, address);
    }
    return address;
  }

  #agentFor(dialTimeoutMs: number): Agent {
    let agent = this.#agents.get(dialTimeoutMs);
    if (agent === undefined) {
      // Limits on headers and bodies are the caller's, which knows what it waits for.
      agent = new Agent({ connect: { timeout: dialTimeoutMs }, headersTimeout: 0, bodyTimeout: 0, pipelining: 1 });
      this.#agents.set(dialTimeoutMs, agent);
    }
    return agent;
  }
}

class UndiciExchange implements UpstreamExchange, Dispatcher.DispatchHandler {
  readonly #handler: UpstreamHandler;
  #controller: Dispatcher.DispatchController | null = null;
  #headed = false;
  #over = false;

  constructor(handler: UpstreamHandler) {
    this.#handler = handler;
  }

  /** A request starts when it has a connection to itself. */
  get sent(): boolean {
    return this.#controller !== null;
  }

  resume(): void {
    if (!this.#over) this.#controller?.resume();
  }

  abort(): void {
    if (this.#over) return;
    this.#over = true;
    this.#controller?.abort(new Error("aborted by the caller"));
  }

  onRequestStart(controller: Dispatcher.DispatchController): void {
    // Aborted while it waited for a connection: nothing has been sent yet, and nothing will be.
    if (this.#over) controller.abort(new Error("aborted by the caller"));
    else this.#controller = controller;
  }

  onResponseStart(
    _: Dispatcher.DispatchController,
    status: number,
    headers: Record<string, string | string[] | undefined>,
  ): void {
    if (this.#over || status < 200) return;
    this.#headed = true;
    this.#handler.onHeaders(status, joined(headers));
  }

  onResponseData(controller: Dispatcher.DispatchController, chunk: Uint8Array): void {
    if (this.#over) return;
    const goOn = this.#handler.onData(chunk);
    if (!goOn && !this.#isOver()) controller.pause();
  }

  onResponseEnd(): void {
    if (this.#over) return;
    this.#over = true;
    this.#handler.onEnd();
  }

  onResponseError(_: Dispatcher.DispatchController, error: Error): void {
    if (this.#over) return;
    this.#over = true;
    this.#handler.onFailure(this.#failureOf(error), error);
  }

  #failureOf(error: Error): UpstreamFailure {
    if (this.#headed) return "closed_in_body";
    if (this.#controller !== null) return "closed_before_headers";
    return "code" in error && error.code === "UND_ERR_CONNECT_TIMEOUT" ? "dial_timeout" : "unreachable";
  }

  /** The handler may have aborted inside its own callback. */
  #isOver(): boolean {
    return this.#over;
  }
}

/** Names come in lower case. */
function joined(headers: Record<string, string | string[] | undefined>): Record<string, string> {
  const result: Record<string, string> = {};
  for (const name of Object.keys(headers)) {
    const value = headers[name];
    if (value !== undefined) result[name] = typeof value === "string" ? value : value.join(", ");
  }
  return result;
}
