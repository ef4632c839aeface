/** One HTTP request to a host or a static endpoint. */
export interface UpstreamRequest {
  /** Absolute. Redirects are never followed. */
  readonly url: string;
  readonly method: "GET" | "POST";
  readonly headers: Readonly<Record<string, string>>;
  readonly body: Uint8Array | null;
  /** Time to get a connection; every other time limit is the caller's. */
  readonly dialTimeoutMs: number;
}

export type UpstreamFailure =
  /** No connection: refused, unreachable, name unknown, TLS refused. Nothing was sent. */
  | "unreachable"
  | "dial_timeout"
  /** The connection ended before any response header; the request may have been read. */
  | "closed_before_headers"
  /** The connection ended inside the body. */
  | "closed_in_body";

/** Callbacks of one exchange, in this order: onHeaders, any onData, then exactly one of onEnd and onFailure. */
export interface UpstreamHandler {
  /** Header names are lower case; repeated ones are joined by a comma. */
  onHeaders(status: number, headers: Readonly<Record<string, string>>): void;
  /** Returning false holds further data back until `resume`. */
  onData(chunk: Uint8Array): boolean;
  onEnd(): void;
  /** Never called after `abort`. */
  onFailure(failure: UpstreamFailure, cause: unknown): void;
}

export interface UpstreamExchange {
  /** False while surely no byte has left: aborted now, the machine never hears of it. An adapter that cannot tell says true. */
  readonly sent: boolean;
  resume(): void;
  /** Closes the connection at once, in whatever phase it is. No callback follows. May be called twice. */
  abort(): void;
}

/** Sends requests to backends and streams answers back with back-pressure. Adapters: undici on Node, fetch elsewhere. */
export interface Upstream {
  open(request: UpstreamRequest, handler: UpstreamHandler): UpstreamExchange;
  close(): Promise<void>;
}
