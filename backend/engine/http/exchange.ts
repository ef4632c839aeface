import type { IncomingMessage, ServerResponse } from "node:http";
import { ApiError } from "../../../shared/errors/api-error.ts";
import type { Logger } from "../../../shared/logging/logger.ts";
import {
  ENGINE_ATTEMPT_HEADER,
  ENGINE_CACHE_SALT_HEADER,
  ENGINE_REQUEST_ID_HEADER,
  STRICT_HEADER,
} from "../../../shared/protocol/headers.ts";
import type { RequestAccount } from "../events/request-account.ts";
import type { RequestLabel } from "../loop/generation-task.ts";

/** One request on its way through the engine. */
export interface Exchange {
  readonly response: ServerResponse;
  /** Told exactly once, however the exchange ends. */
  readonly account: RequestAccount;
  /** Aborted when the client is gone or has its answer. */
  readonly gone: AbortSignal;
  readonly logger: Logger;
  readonly salt: string;
}

/** The host's name for the request, or null where none was given. */
export function labelOf(request: IncomingMessage): RequestLabel | null {
  const requestId = headerOf(request, ENGINE_REQUEST_ID_HEADER);
  if (requestId === "") return null;
  const attempt = Number(headerOf(request, ENGINE_ATTEMPT_HEADER) || "1");
  return { requestId, attempt: Number.isSafeInteger(attempt) && attempt >= 1 ? attempt : 1 };
}

export function saltOf(request: IncomingMessage): string {
  return headerOf(request, ENGINE_CACHE_SALT_HEADER);
}

export function isStrict(request: IncomingMessage): boolean {
  const value = headerOf(request, STRICT_HEADER).toLowerCase();
  if (["", "false", "0"].includes(value)) return false;
  if (["true", "1"].includes(value)) return true;
  throw new ApiError("invalid_value", { message: "X-Steerage-Strict must be true or false.", param: STRICT_HEADER });
}

export function headerOf(request: IncomingMessage, name: string): string {
  const value = request.headers[name];
  return typeof value === "string" ? value : "";
}
