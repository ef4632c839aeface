/** Statuses that the official OpenAI clients repeat of their own accord. */
const repeated = (status: number): boolean => status >= 500 || status === 408 || status === 409 || status === 429;

/** Those clients sleep as long as they are told; no call should hang for longer than this, as until a new month. */
const LONGEST_SLEEP_SECONDS = 300;

/** Tells clients when to come back, or, where waiting inside a call does not help, not to. Whole seconds, from 1. */
export function retryHeaders(status: number, retryAfterSeconds: number | null): Record<string, string> {
  const seconds = retryAfterSeconds === null ? Infinity : Math.max(1, Math.ceil(retryAfterSeconds));
  return {
    ...(seconds === Infinity ? {} : { "retry-after": String(seconds) }),
    ...(repeated(status) && seconds > LONGEST_SLEEP_SECONDS ? { "x-should-retry": "false" } : {}),
  };
}
