import { request, type IncomingMessage, type ServerResponse } from "node:http";
import { ApiError } from "../../shared/errors/api-error.ts";
import {
  ENGINE_ATTEMPT_HEADER,
  ENGINE_CACHE_SALT_HEADER,
  ENGINE_REQUEST_ID_HEADER,
  ERROR_SOURCE_HEADER,
  STRICT_HEADER,
} from "../../shared/protocol/headers.ts";
import { isPassedDown } from "../../shared/protocol/passed-down.ts";
import type { InferenceClaims } from "../../shared/protocol/inference-token.ts";
import { sseData } from "../../shared/sse/writer.ts";
import { sendError } from "../http-answers.ts";
import type { ExchangeEnd } from "./running-requests.ts";
import { WholeEventFilter } from "./whole-events.ts";

export interface EngineExchange {
  readonly socketPath: string;
  readonly claims: InferenceClaims;
  readonly body: Buffer;
  readonly contentType: string;
  readonly accept: string;
  /** The caller's X-Steerage-Strict, for the engine to judge; undefined when it was not sent. */
  readonly strict: string | undefined;
  readonly response: ServerResponse;
  readonly onEvents: (count: number) => void;
  /** Whether the engine told elsewhere that it works on this. */
  readonly wasHeard: () => boolean;
  /** Exactly once. At `unreached` and `unheard` the response is untouched and the caller's to answer. */
  readonly onEnd: (end: ExchangeEnd) => void;
}

/** Errors of a connection that was never made, so that the engine cannot have read anything. */
const NEVER_CONNECTED = new Set<unknown>(["ECONNREFUSED", "ENOENT", "EACCES"]);

/**
 * Carries one request to an engine and its bytes back, with back-pressure. The edge's leaving closes the engine's
 * connection at once; the engine's death becomes an error event in a stream, and before any byte a 502 where it may have
 * worked on the request.
 */
export function exchangeWithEngine(exchange: EngineExchange): void {
  const { response, claims } = exchange;
  let ended = false;
  const end = (how: ExchangeEnd): void => {
    if (ended) return;
    ended = true;
    exchange.onEnd(how);
  };
  const outgoing = request({
    socketPath: exchange.socketPath,
    path: claims.path,
    method: claims.method,
    // A connection of its own: closing it is what cancels, and a stale one would cost a request.
    agent: false,
    headers: {
      "content-type": exchange.contentType,
      accept: exchange.accept,
      ...(exchange.strict === undefined ? {} : { [STRICT_HEADER]: exchange.strict }),
      "content-length": exchange.body.length,
      [ENGINE_REQUEST_ID_HEADER]: claims.request_id,
      [ENGINE_ATTEMPT_HEADER]: String(claims.attempt),
      [ENGINE_CACHE_SALT_HEADER]: claims.cache_salt,
    },
  });
  response.once("close", () => {
    if (response.writableFinished) return;
    end("cancelled");
    outgoing.destroy();
  });
  let answered = false;
  outgoing.on("error", (error) => {
    if (ended || answered) return;
    if ("code" in error && NEVER_CONNECTED.has(error.code)) end("unreached");
    else if (!exchange.wasHeard()) end("unheard");
    else {
      end("broke");
      sendError(response, new ApiError("engine_crashed", { source: "backend" }));
    }
  });
  outgoing.on("response", (incoming) => {
    answered = true;
    relay(incoming, exchange, end);
  });
  outgoing.end(exchange.body);
}

function relay(incoming: IncomingMessage, exchange: EngineExchange, end: (how: ExchangeEnd) => void): void {
  const { response } = exchange;
  const status = incoming.statusCode ?? 502;
  const streams = incoming.headers["content-type"]?.startsWith("text/event-stream") === true;
  const filter = streams ? new WholeEventFilter() : null;
  const sendHead = (): void => {
    if (!response.headersSent) response.writeHead(status, headersOf(incoming, status));
  };
  if (streams) {
    sendHead();
    response.flushHeaders();
  }
  response.on("drain", () => incoming.resume());
  incoming.on("data", (chunk: Buffer) => {
    sendHead();
    let bytes: Uint8Array = chunk;
    if (filter !== null) {
      const whole = filter.push(chunk);
      exchange.onEvents(whole.events);
      bytes = whole.bytes;
    }
    if (bytes.length > 0 && !response.write(bytes)) incoming.pause();
  });
  incoming.on("error", () => undefined);
  incoming.on("end", () => {
    // A stream that has no closing frame ends here too when its connection broke; `complete` tells them apart.
    if (!incoming.complete) return;
    sendHead();
    end(status >= 400 ? "refused" : "completed");
    response.end(filter?.rest());
  });
  incoming.on("close", () => {
    if (incoming.complete || response.destroyed) return;
    end("broke");
    const error = new ApiError("engine_crashed", { source: "backend" });
    if (!response.headersSent) sendError(response, error);
    else if (streams) response.end(sseData(JSON.stringify(error.toBody())));
    else response.destroy();
  });
}

function headersOf(incoming: IncomingMessage, status: number): Record<string, string> {
  const headers: Record<string, string> = {};
  for (const [name, value] of Object.entries(incoming.headers)) {
    if (typeof value === "string" && isPassedDown(name)) headers[name] = value;
  }
  if (status >= 400) headers[ERROR_SOURCE_HEADER] ??= "backend";
  return headers;
}
