import type { MiddlewareHandler } from "hono";
import type { EdgeDeps } from "../../deps.ts";
import { bearerCredential } from "../bearer.ts";
import type { HttpEnvironment } from "../environment.ts";

/**
 * Finds the principal from the Authorization header, and from nowhere else, before anything of the body is read.
 * Where keys are switched off everybody is one principal.
 */
export function requireKey(deps: Pick<EdgeDeps, "authenticator" | "everybody">): MiddlewareHandler<HttpEnvironment> {
  return async (c, next) => {
    const principal =
      deps.everybody ?? (await deps.authenticator.authenticate(bearerCredential(c.req.header("authorization"))));
    c.set("principal", principal);
    await next();
  };
}
