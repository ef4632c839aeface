import type { MiddlewareHandler } from "hono";
import type { Authenticator } from "../../ports/principal.ts";
import { bearerCredential } from "../bearer.ts";
import type { HttpEnvironment } from "../environment.ts";

/** Finds the principal from the Authorization header, and from nowhere else, before anything of the body is read. */
export function requireKey(authenticator: Authenticator): MiddlewareHandler<HttpEnvironment> {
  return async (c, next) => {
    c.set("principal", await authenticator.authenticate(bearerCredential(c.req.header("authorization"))));
    await next();
  };
}
