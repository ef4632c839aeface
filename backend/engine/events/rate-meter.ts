const BUCKET_MS = 1_000;
const BUCKETS = 5;

/** Events per second over the last five seconds. */
export class RateMeter {
  readonly #counts = new Map<number, number>();

  record(count: number, nowMs: number): void {
    const bucket = Math.floor(nowMs / BUCKET_MS);
    this.#counts.set(bucket, (this.#counts.get(bucket) ?? 0) + count);
    for (const old of this.#counts.keys()) if (old <= bucket - BUCKETS) this.#counts.delete(old);
  }

  perSecond(nowMs: number): number {
    const newest = Math.floor(nowMs / BUCKET_MS);
    let sum = 0;
    let oldest = newest;
    for (const [bucket, count] of this.#counts) {
      if (bucket <= newest - BUCKETS) continue;
      sum += count;
      oldest = Math.min(oldest, bucket);
    }
    // A burst that began half a second ago must not look five times slower than it is.
    const spanMs = Math.max(BUCKET_MS, nowMs - oldest * BUCKET_MS);
    return (sum * 1_000) / spanMs;
  }
}
