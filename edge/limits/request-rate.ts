/** Rates are per minute: the window of every limit here. */
export const WINDOW_MS = 60_000;

/**
 * Requests per minute by the generic cell rate algorithm. One number, the theoretical arrival time: as far as it lies
 * ahead of now, so much of the window is used up. A whole window's requests may come in one burst.
 */
export interface RequestRate {
  readonly arrivalMs: number;
}

export const IDLE_RATE: RequestRate = { arrivalMs: Number.NEGATIVE_INFINITY };

/** Sums of floating-point intervals miss whole numbers by far less than this. */
const ROUNDING_MS = 1e-6;

/** The state after one more request at `nowMs` (monotonic), or how long to wait for it. */
export function takeRequest(
  rate: RequestRate,
  perMinute: number,
  nowMs: number,
): { readonly ok: true; readonly rate: RequestRate } | { readonly ok: false; readonly waitMs: number } {
  const arrivalMs = Math.max(rate.arrivalMs, nowMs) + WINDOW_MS / perMinute;
  const waitMs = arrivalMs - nowMs - WINDOW_MS;
  return waitMs <= ROUNDING_MS ? { ok: true, rate: { arrivalMs } } : { ok: false, waitMs };
}

/** The state as if one request of the past had not been made. */
export const withoutOneRequest = (rate: RequestRate, perMinute: number): RequestRate => ({
  arrivalMs: rate.arrivalMs - WINDOW_MS / perMinute,
});

/** Requests that could be made now, and the time until all of the window's are free again. */
export function requestsLeft(
  rate: RequestRate,
  perMinute: number,
  nowMs: number,
): { readonly remaining: number; readonly resetMs: number } {
  const resetMs = Math.max(0, rate.arrivalMs - nowMs);
  const remaining = Math.floor(((WINDOW_MS - resetMs) * perMinute) / WINDOW_MS + ROUNDING_MS);
  return { remaining: Math.max(0, remaining), resetMs };
}
