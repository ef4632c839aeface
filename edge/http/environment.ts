import type { Context } from "hono";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Principal } from "../ports/principal.ts";

/** What middleware lays down for routes. */
export interface HttpVariables {
  requestId: string;
  clientRequestId: string | null;
  receivedAtMs: number;
  logger: Logger;
  /** Only behind `requireKey`. */
  principal: Principal;
}

export interface HttpEnvironment {
  Variables: HttpVariables;
  Bindings: Record<string, unknown>;
}

export type HttpContext = Context<HttpEnvironment>;
