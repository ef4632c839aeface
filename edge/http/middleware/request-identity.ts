import type { MiddlewareHandler } from "hono";
import { newRequestId } from "../../../shared/ids.ts";
import { REQUEST_ID_HEADER } from "../../../shared/protocol/headers.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { HttpEnvironment } from "../environment.ts";

/** Longest part of a caller's own request id that is kept, characters. */
export const MAX_CLIENT_REQUEST_ID_LENGTH = 128;

export interface RequestIdentity {
  readonly requestId: string;
  /** The caller's own. */
  readonly clientRequestId: string | null;
  /** Wall time. */
  readonly receivedAtMs: number;
}

/** Who a request is, made where it comes in. */
export function newRequestIdentity(
  deps: Pick<EdgeDeps, "randomBytes" | "clock">,
  clientHeader: string | undefined,
): RequestIdentity {
  return {
    requestId: newRequestId(deps.randomBytes),
    clientRequestId: clientRequestIdOf(clientHeader),
    receivedAtMs: deps.clock.nowMs(),
  };
}

/** Gives every request its id, its time of arrival and its log; the id goes back on every answer. */
export function requestIdentity(deps: EdgeDeps): MiddlewareHandler<HttpEnvironment> {
  return async (c, next) => {
    const { requestId, clientRequestId, receivedAtMs } = newRequestIdentity(deps, c.req.header(REQUEST_ID_HEADER));
    c.set("requestId", requestId);
    c.set("clientRequestId", clientRequestId);
    c.set("receivedAtMs", receivedAtMs);
    c.set("logger", deps.logger.with({ request_id: requestId }));
    await next();
    if (!c.res.headers.has(REQUEST_ID_HEADER)) c.res.headers.set(REQUEST_ID_HEADER, requestId);
  };
}

/** A caller's id is a label for people: printable ASCII only, cut to a bound; null when nothing is left. */
export function clientRequestIdOf(header: string | undefined): string | null {
  if (header === undefined) return null;
  const text = header.replace(/[^\x21-\x7e]/g, "").slice(0, MAX_CLIENT_REQUEST_ID_LENGTH);
  return text === "" ? null : text;
}
