import type { OutgoingHttpHeaders, ServerResponse } from "node:http";
import { toApiError } from "../../../shared/errors/api-error.ts";
import type { Logger } from "../../../shared/logging/logger.ts";
import { ERROR_SOURCE_HEADER } from "../../../shared/protocol/headers.ts";

/** One JSON answer with its length, unless an answer has begun already. */
export function sendJson(
  response: ServerResponse,
  status: number,
  body: object,
  headers: OutgoingHttpHeaders = {},
): void {
  if (response.headersSent || response.destroyed) return;
  const text = JSON.stringify(body);
  response.writeHead(status, {
    "content-type": "application/json; charset=utf-8",
    "content-length": Buffer.byteLength(text),
    ...headers,
  });
  response.end(text);
}

/** An error in OpenAI's envelope. What nobody foresaw is logged in full and told as a constant. */
export function sendError(
  response: ServerResponse,
  thrown: unknown,
  logger: Logger,
  headers: OutgoingHttpHeaders = {},
): void {
  const error = toApiError(thrown);
  if (error.status >= 500 && error.code !== "engine_busy" && error.code !== "draining") {
    logger.error("request failed", { code: error.code }, error.cause ?? thrown);
  }
  const retry = error.retryAfterSeconds === null ? {} : { "retry-after": String(error.retryAfterSeconds) };
  sendJson(response, error.status, error.toBody(), { [ERROR_SOURCE_HEADER]: "backend", ...retry, ...headers });
}
