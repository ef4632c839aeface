import { createServer, STATUS_CODES, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import type { Duplex } from "node:stream";
import { getRequestListener, RequestError, type HttpBindings } from "@hono/node-server";
import { ApiError } from "../../shared/errors/api-error.ts";
import { errorHeaders } from "../http/render-error.ts";
import type { Front } from "./inference-front.ts";
import { OperatorError } from "./operator-error.ts";

/** A Hono app, as far as a server needs to know it. */
export interface FetchApp {
  fetch(request: Request, bindings: object): Response | Promise<Response>;
}

export interface Listener {
  /** Origin with the port that was really taken. */
  readonly url: string;
  /** Takes no new connection; resolves when the last one is closed. Idle ones are closed at once. */
  stop(): Promise<void>;
  /** Breaks whatever is still open. */
  breakConnections(): void;
}

/** How long a client may keep an idle connection: longer than usual load balancers, so that they close first. */
const KEEP_ALIVE_TIMEOUT_MS = 75_000;
const HEADERS_TIMEOUT_MS = 30_000;
/** For the whole request with its body; answers may take longer. */
const REQUEST_TIMEOUT_MS = 120_000;

/** Connections that may wait to be taken: Node's own 511 are gone in an instant when a fleet of clients reconnects. */
const BACKLOG = 4_096;

/** Of all paths together. */
const METHODS = "GET, HEAD, POST, OPTIONS";

/**
 * Serves an app at `host:port`; `front` may take requests before it. Rejects with OperatorError when the address cannot
 * be taken.
 */
export async function listen(app: FetchApp, address: string, name: string, front?: Front): Promise<Listener> {
  const { host, port } = addressOf(address);
  const options = {
    // Node's own Request and Response stay as they are for the rest of the process.
    overrideGlobalObjects: false,
    errorHandler: (thrown: unknown) => refusalOf(thrown),
  };
  const listener = getRequestListener((request: Request, bindings: object) => app.fetch(request, bindings), options);
  const server = createServer(
    { keepAliveTimeout: KEEP_ALIVE_TIMEOUT_MS, headersTimeout: HEADERS_TIMEOUT_MS, requestTimeout: REQUEST_TIMEOUT_MS },
    (incoming, outgoing) => {
      // About the server as a whole: no path, so no route.
      if (incoming.method === "OPTIONS" && incoming.url === "*") outgoing.writeHead(204, { allow: METHODS }).end();
      else if (front === undefined || !front(incoming, outgoing, refuseWith(incoming, outgoing)))
        void listener(incoming, outgoing);
    },
  );
  const refuseWith = (incoming: IncomingMessage, outgoing: ServerResponse) => (answer: Response) =>
    void getRequestListener(() => answer, options)(incoming, outgoing);
  server.on("clientError", (error: NodeJS.ErrnoException, socket) => answerBrokenRequest(error, socket));
  const taken = await bound(server, host, port, name);
  return {
    url: `http://${taken.family === "IPv6" ? `[${taken.address}]` : taken.address}:${taken.port}`,
    stop: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
      }),
    breakConnections: () => server.closeAllConnections(),
  };
}

export type { HttpBindings };

/** `host:port`, `[::1]:port`, `:port`. */
export function addressOf(address: string): { readonly host: string | undefined; readonly port: number } {
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon).replace(/^\[|\]$/g, "");
  return { host: host === "" ? undefined : host, port: Number(address.slice(colon + 1)) };
}

function bound(server: Server, host: string | undefined, port: number, name: string): Promise<AddressInfo> {
  return new Promise((resolve, reject) => {
    const refuse = (error: NodeJS.ErrnoException): void => {
      const why =
        error.code === "EADDRINUSE" ? "the address is in use" : error.code === "EACCES" ? "not permitted" : error.code;
      reject(new OperatorError(`${name} cannot listen on ${host ?? "*"}:${port}: ${why}.`));
    };
    server.once("error", refuse);
    server.listen({ port, host, backlog: BACKLOG }, () => {
      server.off("error", refuse);
      const taken = server.address();
      if (taken === null || typeof taken === "string") reject(new Error("a TCP server has an address"));
      else resolve(taken);
    });
  });
}

/** A request that never became one: a target that is no path, a header that is no host. */
function refusalOf(thrown: unknown): Response {
  const error =
    thrown instanceof RequestError
      ? new ApiError("invalid_value", { message: "The request target or the Host header is not valid." })
      : new ApiError("internal_error", { cause: thrown });
  return new Response(JSON.stringify(error.toBody()), { status: error.status, headers: errorHeaders(error) });
}

/** What Node's parser refuses gets our envelope too; nothing can be said on a socket that is gone. */
function answerBrokenRequest(error: NodeJS.ErrnoException, socket: Duplex): void {
  if (error.code === "ECONNRESET" || !socket.writable) {
    socket.destroy();
    return;
  }
  const status = error.code === "HPE_HEADER_OVERFLOW" ? 431 : error.code === "ERR_HTTP_REQUEST_TIMEOUT" ? 408 : 400;
  const message =
    status === 431
      ? "The request's headers are too large."
      : status === 408
        ? "The request did not arrive in time."
        : "The request is not valid HTTP.";
  const body = JSON.stringify(new ApiError("invalid_value", { message }).toBody());
  socket.end(
    `HTTP/1.1 ${status} ${STATUS_CODES[status] ?? ""}\r\nconnection: close\r\ncontent-type: application/json; charset=utf-8\r\n` +
      `content-length: ${Buffer.byteLength(body)}\r\n\r\n${body}`,
  );
}
