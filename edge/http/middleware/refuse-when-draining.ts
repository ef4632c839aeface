import type { MiddlewareHandler } from "hono";
import { ApiError } from "../../../shared/errors/api-error.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { HttpEnvironment } from "../environment.ts";

/** New inference requests are refused once the process is on its way out; running ones are not touched. */
export function refuseWhenDraining(deps: EdgeDeps): MiddlewareHandler<HttpEnvironment> {
  return async (_c, next) => {
    if (deps.draining()) throw new ApiError("draining", { retryAfterSeconds: deps.settings.drainRetryAfterSeconds });
    await next();
  };
}
