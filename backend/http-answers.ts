import type { IncomingMessage, ServerResponse } from "node:http";
import { ApiError } from "../shared/errors/api-error.ts";
import { ERROR_SOURCE_HEADER } from "../shared/protocol/headers.ts";

/** Answers with an error, once; does nothing when the head is gone already. */
export function sendError(response: ServerResponse, error: ApiError, headers: Record<string, string> = {}): void {
  if (response.headersSent || response.destroyed) return;
  const body = JSON.stringify(error.toBody());
  response.writeHead(error.status, {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
    [ERROR_SOURCE_HEADER]: error.source ?? "backend",
    ...(error.retryAfterSeconds === null ? {} : { "retry-after": String(error.retryAfterSeconds) }),
    ...headers,
  });
  response.end(body);
}

export function sendJson(response: ServerResponse, status: number, document: unknown): void {
  const body = JSON.stringify(document);
  response.writeHead(status, { "content-type": "application/json", "content-length": Buffer.byteLength(body) });
  response.end(body);
}

/** The whole body, or an ApiError: `body_too_large` as soon as it is, `length_required` when it broke off. */
export function readBody(request: IncomingMessage, limitBytes: number): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    if (Number(request.headers["content-length"] ?? 0) > limitBytes) {
      reject(new ApiError("body_too_large", { source: "backend" }));
      return;
    }
    const chunks: Buffer[] = [];
    let length = 0;
    request.on("data", (chunk: Buffer) => {
      length += chunk.length;
      if (length > limitBytes) reject(new ApiError("body_too_large", { source: "backend" }));
      else chunks.push(chunk);
    });
    request.on("end", () => resolve(Buffer.concat(chunks)));
    request.on("error", (cause) => reject(new ApiError("length_required", { source: "backend", cause })));
    request.on("close", () => reject(new ApiError("length_required", { source: "backend" })));
  });
}
