import { toApiError, type ApiError } from "../../shared/errors/api-error.ts";
import { retryHeaders } from "../../shared/errors/retry-headers.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import { ERROR_SOURCE_HEADER } from "../../shared/protocol/headers.ts";
import type { HttpContext } from "./environment.ts";

/** Headers of every refusal and failure that the edge renders as a whole answer. */
export function errorHeaders(error: ApiError): Record<string, string> {
  const headers: Record<string, string> = {
    "content-type": "application/json; charset=utf-8",
    "cache-control": "no-store",
    [ERROR_SOURCE_HEADER]: error.source ?? "edge",
    ...retryHeaders(error.status, error.retryAfterSeconds),
  };
  if (error.status === 401) headers["www-authenticate"] = "Bearer";
  return headers;
}

export interface ErrorAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

/** The one renderer: anything thrown becomes the OpenAI error body; what is unknown to us goes to the log only. */
export function errorAnswer(thrown: unknown, logger: () => Logger): ErrorAnswer {
  const error = toApiError(thrown);
  if (error.code === "internal_error") logger().error("a request failed unexpectedly", {}, thrown);
  return { status: error.status, headers: errorHeaders(error), body: JSON.stringify(error.toBody()) };
}

export function renderError(c: HttpContext, thrown: unknown): Response {
  const { status, headers, body } = errorAnswer(thrown, () => c.get("logger"));
  return new Response(body, { status, headers });
}
