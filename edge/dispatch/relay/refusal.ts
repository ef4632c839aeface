import { z } from "zod";
import type { ApiError, ErrorBody, ErrorSource } from "../../../shared/errors/api-error.ts";
import { ERRORS, type ErrorCode } from "../../../shared/errors/registry.ts";
import { retryHeaders } from "../../../shared/errors/retry-headers.ts";
import { ERROR_SOURCE_HEADER } from "../../../shared/protocol/headers.ts";

/** An error as it goes to the caller: one of ours, or a backend's own, which may have a code that we do not know. */
export interface Refusal {
  readonly status: number;
  readonly body: ErrorBody;
  readonly retryAfterSeconds: number | null;
  readonly source: ErrorSource;
}

export function refusalOf(error: ApiError): Refusal {
  return {
    status: error.status,
    body: error.toBody(),
    retryAfterSeconds: error.retryAfterSeconds,
    source: error.source ?? "edge",
  };
}

/** A mistake of the request itself, rather than a limit, a machine or time that stood against it. */
export function isCallersFault({ status }: Refusal): boolean {
  return status >= 400 && status < 500 && status !== 408 && status !== 429;
}

export function refusalHeaders({ status, retryAfterSeconds, source }: Refusal): Record<string, string> {
  return {
    "content-type": "application/json; charset=utf-8",
    "cache-control": "no-store",
    [ERROR_SOURCE_HEADER]: source,
    ...retryHeaders(status, retryAfterSeconds),
  };
}

/** Longest message of a backend that is passed on, characters. */
const MAX_MESSAGE_LENGTH = 4_000;

const envelopeSchema = z.object({
  error: z.object({
    message: z.string(),
    type: z.string().nullish(),
    param: z.string().nullish(),
    code: z.union([z.string(), z.number()]).nullish(),
  }),
});
/** Some servers say `{"error":"text"}`, which is an error too but not one that can be passed on. */
const anyErrorSchema = z.looseObject({ error: z.union([z.string().min(1), z.looseObject({})]) });

/** A code of ours for errors that bring none, or a number as some engines do. */
function codeOfStatus(status: number | null): ErrorCode {
  if (status === 404) return "model_not_found";
  if (status === 429) return "rate_limit_exceeded";
  return status !== null && status < 500 ? "invalid_value" : "upstream_error";
}

/**
 * The OpenAI error object in a backend's answer, brought to our four members; null when it is none. `status` is null
 * inside a stream.
 */
export function errorBodyOf(value: unknown, status: number | null): ErrorBody | null {
  const result = envelopeSchema.safeParse(value);
  if (!result.success) return null;
  const { message, type, param, code } = result.data.error;
  const known = codeOfStatus(status);
  return {
    error: {
      message: message.slice(0, MAX_MESSAGE_LENGTH),
      type: type ?? ERRORS[known].type,
      param: param ?? null,
      code: typeof code === "string" && code !== "" ? code : known,
    },
  };
}

export function saysError(value: unknown): boolean {
  return anyErrorSchema.safeParse(value).success;
}

/** Longest wait that a backend may ask for on our behalf, seconds. */
const MAX_RETRY_AFTER_SECONDS = 3_600;

/** A backend's Retry-After in whole seconds, from 1; a date is turned into a wait; null when it says neither. */
export function readRetryAfterSeconds(header: string | undefined, wallNowMs: number): number | null {
  if (header === undefined) return null;
  const text = header.trim();
  const seconds = /^\d+(\.\d+)?$/.test(text) ? Number(text) : (Date.parse(text) - wallNowMs) / 1_000;
  if (!Number.isFinite(seconds)) return null;
  return Math.min(MAX_RETRY_AFTER_SECONDS, Math.max(1, Math.ceil(seconds)));
}

export function parseJson(text: string): unknown {
  try {
    const value: unknown = JSON.parse(text);
    return value;
  } catch {
    return undefined;
  }
}
