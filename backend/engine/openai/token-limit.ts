import { ApiError } from "../../../shared/errors/api-error.ts";

interface LimitedRequest {
  readonly max_tokens?: number | null | undefined;
  readonly max_completion_tokens?: number | null | undefined;
}

/** The caller's limit under either of its two names, or null. Two different numbers are refused. */
export function askedTokenLimit(request: LimitedRequest): number | null {
  const older = request.max_tokens ?? null;
  const newer = request.max_completion_tokens ?? null;
  if (older !== null && newer !== null && older !== newer) {
    throw new ApiError("invalid_value", {
      message: `'max_tokens' is ${older} and 'max_completion_tokens' is ${newer}; give one, or the same number twice.`,
      param: "max_completion_tokens",
    });
  }
  return newer ?? older;
}

/**
 * Tokens that may be sampled: the caller's limit, never beyond the window, and to its end without a limit. A prompt
 * that leaves no room for one token is refused with both numbers.
 */
export function boundCompletionTokens(
  asked: number | null,
  prompt: { readonly tokens: number; readonly param: string },
  contextLength: number,
): number {
  if (prompt.tokens >= contextLength) {
    throw new ApiError("context_length_exceeded", {
      message: `The prompt has ${prompt.tokens} tokens, but the context window holds ${contextLength}, prompt and completion together.`,
      param: prompt.param,
    });
  }
  const left = contextLength - prompt.tokens;
  return asked === null ? left : Math.min(asked, left);
}
