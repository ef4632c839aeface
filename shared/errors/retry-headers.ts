/** Statuses that the official OpenAI clients repeat of their own accord. */
const repeated = (status: number): boolean => status >= 500 || status === 408 || status === 409 || status === 429;

/** Tells clients when to come back, or, where waiting does not help, not to. Whole seconds, from 1. */
export function retryHeaders(status: number, retryAfterSeconds: number | null): Record<string, string> {
  if (retryAfterSeconds !== null) return { "retry-after": String(Math.max(1, Math.ceil(retryAfterSeconds))) };
  return repeated(status) ? { "x-should-retry": "false" } : {};
}
