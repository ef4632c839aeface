import type { MiddlewareHandler } from "hono";
import type { EdgeDeps } from "../../deps.ts";
import { rateLimitHeaders } from "../../dispatch/account/rate-limit-headers.ts";
import { scopesOf } from "../../limits/scopes.ts";
import type { HttpEnvironment } from "../environment.ts";

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
    const principal = c.get("principal");
    // Nobody is refused or kept waiting for the sake of headers that cannot be told.
    const view = await deps.limits
      .inspect({ account: principal.account, scopes: scopesOf(principal), atMs: deps.clock.nowMs() })
      .catch(() => null);
    if (view === null) return;
    for (const [name, value] of Object.entries(rateLimitHeaders(view.state))) c.res.headers.set(name, value);
  };
}
