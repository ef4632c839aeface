import type { MiddlewareHandler } from "hono";
import {
  ERROR_SOURCE_HEADER,
  IGNORED_FIELDS_HEADER,
  REPLAYED_HEADER,
  REQUEST_ID_HEADER,
  ROUTE_HEADER,
  STEERING_HEADER,
} from "../../../shared/protocol/headers.ts";
import type { HttpEnvironment } from "../environment.ts";

const EXPOSED = [
  REQUEST_ID_HEADER,
  STEERING_HEADER,
  ROUTE_HEADER,
  IGNORED_FIELDS_HEADER,
  ERROR_SOURCE_HEADER,
  REPLAYED_HEADER,
  "retry-after",
  "x-should-retry",
  "x-ratelimit-limit-requests",
  "x-ratelimit-remaining-requests",
  "x-ratelimit-reset-requests",
  "x-ratelimit-limit-tokens",
  "x-ratelimit-remaining-tokens",
  "x-ratelimit-reset-tokens",
].join(", ");

/**
 * Browsers of any origin may call with a key of their own: nothing here rests on cookies, so the wildcard gives
 * nothing away. Set before the route runs, so that refusals can be read by the page too (case C076).
 */
export function crossOriginHeaders(origin: string | undefined): Record<string, string> {
  if (origin === undefined) return {};
  return { "access-control-allow-origin": "*", "access-control-expose-headers": EXPOSED };
}

/** Answers preflights without a key, and lets pages read every answer. */
export function crossOrigin(): MiddlewareHandler<HttpEnvironment> {
  return async (c, next) => {
    const origin = c.req.header("origin");
    if (c.req.method === "OPTIONS" && origin !== undefined && c.req.header("access-control-request-method")) {
      return new Response(null, {
        status: 204,
        headers: {
          ...crossOriginHeaders(origin),
          "access-control-allow-methods": "GET, HEAD, POST, OPTIONS",
          "access-control-allow-headers":
            c.req.header("access-control-request-headers") ?? "authorization, content-type",
          "access-control-max-age": "86400",
          vary: "access-control-request-headers",
        },
      });
    }
    await next();
    for (const [name, value] of Object.entries(crossOriginHeaders(origin))) c.res.headers.set(name, value);
    return undefined;
  };
}
