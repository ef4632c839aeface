import { WINDOW_MS } from "./request-rate.ts";

/**
 * Tokens per minute. The bucket holds a minute's worth and fills evenly. What a request really used is only known at
 * its end, so the level may fall below zero: a debt that the next requests wait out.
 */
export interface TokenBucket {
  readonly level: number;
  readonly atMs: number;
}

export const fullBucket = (perMinute: number, nowMs: number): TokenBucket => ({ level: perMinute, atMs: nowMs });

export function refilled(bucket: TokenBucket, perMinute: number, nowMs: number): TokenBucket {
  const passedMs = Math.max(0, nowMs - bucket.atMs);
  return { level: Math.min(perMinute, bucket.level + (passedMs * perMinute) / WINDOW_MS), atMs: nowMs };
}

/**
 * Takes `tokens` when at least `needed` of them are there. A guess that is larger than the whole bucket passes when that
 * is full, since it could never pass otherwise.
 */
export function takeTokens(
  bucket: TokenBucket,
  perMinute: number,
  tokens: number,
  needed: number,
): { readonly ok: true; readonly bucket: TokenBucket } | { readonly ok: false; readonly waitMs: number } {
  const missing = Math.min(needed, perMinute) - bucket.level;
  if (missing > 0) return { ok: false, waitMs: (missing * WINDOW_MS) / perMinute };
  return { ok: true, bucket: { level: bucket.level - tokens, atMs: bucket.atMs } };
}

/** Puts back what was reserved and takes what was used. */
export function settleTokens(bucket: TokenBucket, perMinute: number, reserved: number, used: number): TokenBucket {
  return { level: Math.min(perMinute, bucket.level + reserved - used), atMs: bucket.atMs };
}

export function tokensLeft(
  bucket: TokenBucket,
  perMinute: number,
): { readonly remaining: number; readonly resetMs: number } {
  return {
    remaining: Math.max(0, Math.floor(bucket.level)),
    resetMs: Math.max(0, ((perMinute - bucket.level) * WINDOW_MS) / perMinute),
  };
}
