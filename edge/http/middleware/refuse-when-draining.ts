import type { MiddlewareHandler } from "hono";
import { ApiError } from "../../../shared/errors/api-error.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { HttpEnvironment } from "../environment.ts";

/** Throws the refusal of a process on its way out. */
export function checkNotDraining(deps: Pick<EdgeDeps, "draining" | "settings">): void {
  if (deps.draining()) throw new ApiError("draining", { retryAfterSeconds: deps.settings.drainRetryAfterSeconds });
}

/** New inference requests are refused once the process is on its way out; running ones are not touched. */
export function refuseWhenDraining(deps: EdgeDeps): MiddlewareHandler<HttpEnvironment> {
  return async (_c, next) => {
    checkNotDraining(deps);
    await next();
  };
}
