import type { RateLimitState } from "../../ports/limits.ts";

/** `x-ratelimit-*` as OpenAI names and writes them; limits that do not exist are left out. */
export function rateLimitHeaders(state: RateLimitState): Record<string, string> {
  return {
    ...scopeHeaders("requests", state.limitRequests, state.remainingRequests, state.resetRequestsMs),
    ...scopeHeaders("tokens", state.limitTokens, state.remainingTokens, state.resetTokensMs),
  };
}

function scopeHeaders(
  what: "requests" | "tokens",
  limit: number | null,
  remaining: number | null,
  resetMs: number | null,
): Record<string, string> {
  if (limit === null) return {};
  const headers: Record<string, string> = { [`x-ratelimit-limit-${what}`]: String(limit) };
  if (remaining !== null) headers[`x-ratelimit-remaining-${what}`] = String(Math.max(0, Math.floor(remaining)));
  if (resetMs !== null) headers[`x-ratelimit-reset-${what}`] = durationText(Math.max(0, resetMs));
  return headers;
}

/** `6m0s`, `1.5s`, `20ms`. */
export function durationText(ms: number): string {
  const whole = Math.ceil(ms);
  if (whole < 1_000) return `${whole}ms`;
  const minutes = Math.floor(whole / 60_000);
  const seconds = (whole % 60_000) / 1_000;
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds}s`;
}
