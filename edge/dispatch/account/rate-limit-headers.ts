import type { RateLimitState } from "../../ports/limits.ts";

/** `x-ratelimit-*` as OpenAI names and writes them; limits that do not exist are left out. */
export function rateLimitHeaders(state: RateLimitState): Record<string, string> {
  const headers: Record<string, string> = {};
  const { limitRequests, remainingRequests, resetRequestsMs, limitTokens, remainingTokens, resetTokensMs } = state;
  if (limitRequests !== null) {
    headers["x-ratelimit-limit-requests"] = String(limitRequests);
    if (remainingRequests !== null) headers["x-ratelimit-remaining-requests"] = wholeText(remainingRequests);
    if (resetRequestsMs !== null) headers["x-ratelimit-reset-requests"] = durationText(Math.max(0, resetRequestsMs));
  }
  if (limitTokens !== null) {
    headers["x-ratelimit-limit-tokens"] = String(limitTokens);
    if (remainingTokens !== null) headers["x-ratelimit-remaining-tokens"] = wholeText(remainingTokens);
    if (resetTokensMs !== null) headers["x-ratelimit-reset-tokens"] = durationText(Math.max(0, resetTokensMs));
  }
  return headers;
}

const wholeText = (amount: number): string => String(Math.max(0, Math.floor(amount)));

/** `6m0s`, `1.5s`, `20ms`. */
export function durationText(ms: number): string {
  const whole = Math.ceil(ms);
  if (whole < 1_000) return `${whole}ms`;
  const minutes = Math.floor(whole / 60_000);
  const seconds = (whole % 60_000) / 1_000;
  return minutes === 0 ? `${seconds}s` : `${minutes}m${seconds}s`;
}
