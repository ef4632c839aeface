import type { MiddlewareHandler } from "hono";
import type { EdgeDeps } from "../../deps.ts";
import type { HttpEnvironment } from "../environment.ts";
import { limitHeaders } from "../limit-headers.ts";

/**
 * `x-ratelimit-*` on every answer to a key that has none yet: dispatch tells those of its own reservation, this the
 * rest, refusals before dispatch included. Behind `requireKey`.
 */
export function rateLimitState(
  deps: Pick<EdgeDeps, "limits" | "clock">,
  options: { readonly dispatches: boolean },
): MiddlewareHandler<HttpEnvironment> {
  return async (c, next) => {
    await next();
    if (options.dispatches && c.error === undefined) return;
    const headers = await limitHeaders(deps, c.get("principal"));
    for (const [name, value] of Object.entries(headers)) c.res.headers.set(name, value);
  };
}
