import { ERRORS, type ErrorCode } from "./registry.ts";

/** Which program refused or failed; sent as X-Steerage-Error-Source. */
export type ErrorSource = "edge" | "backend";

export interface ApiErrorOptions {
  /** For the caller: no secret, no path, no address. */
  readonly message?: string;
  /** The request member at fault, such as `messages[0].role`. */
  readonly param?: string;
  /** Whole seconds, at least 1. Needed where the registry says retryable; null where waiting does not help this one. */
  readonly retryAfterSeconds?: number | null;
  readonly source?: ErrorSource;
  /** For the log only. */
  readonly cause?: unknown;
}

/** The body of every refusal and failure, as OpenAI clients expect it. */
export interface ErrorBody {
  readonly error: {
    readonly message: string;
    readonly type: string;
    readonly param: string | null;
    readonly code: string;
  };
}

/** An error that may be shown to a caller. Branch on `code`, never on `message`. */
export class ApiError extends Error {
  readonly code: ErrorCode;
  readonly param: string | null;
  readonly retryAfterSeconds: number | null;
  readonly source: ErrorSource | null;

  constructor(code: ErrorCode, options: ApiErrorOptions = {}) {
    super(options.message ?? ERRORS[code].message, { cause: options.cause });
    this.name = "ApiError";
    this.code = code;
    this.param = options.param ?? null;
    this.source = options.source ?? null;
    const { retryAfterSeconds } = options;
    this.retryAfterSeconds = retryAfterSeconds === undefined ? (ERRORS[code].retryable ? 1 : null) : retryAfterSeconds;
  }

  get status(): number {
    return ERRORS[this.code].status;
  }

  toBody(): ErrorBody {
    return { error: { message: this.message, type: ERRORS[this.code].type, param: this.param, code: this.code } };
  }
}

/** Anything thrown, as something that may be shown: an unknown failure becomes the constant internal_error. */
export function toApiError(thrown: unknown): ApiError {
  return thrown instanceof ApiError ? thrown : new ApiError("internal_error", { cause: thrown });
}
