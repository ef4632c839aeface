import type { SensedRows } from "../../native/binding.ts";

/** What was sensed in one step of one request. */
export type SensedValues = Pick<SensedRows, "counts" | "indices" | "values">;

export interface FeatureFigures {
  readonly index: number;
  /** Rows in which it was active. */
  readonly count: number;
  /** Of the rows in which it was active; null where there was none. */
  readonly mean: number | null;
  readonly max: number | null;
  /** Share of all rows in which it was active; null where there were no rows. */
  readonly density: number | null;
  /** Rows in which it was above the threshold. */
  readonly over_threshold: number;
}
export interface WindowFigures {
  readonly requests: number;
  /** Token positions that went through the model. */
  readonly rows: number;
  readonly features: readonly FeatureFigures[];
}
export interface BucketFigures extends WindowFigures {
  readonly start_ms: number;
}

export const BUCKET_MS = 60_000;
/** The longest window: what is older is forgotten. */
export const KEPT_BUCKETS = 60;

/** Sums over one span of time, by the feature's place. */
class Bucket {
  requests = 0;
  rows = 0;
  readonly count: Float64Array;
  readonly sum: Float64Array;
  readonly max: Float64Array;
  readonly over: Float64Array;

  constructor(size: number) {
    this.count = new Float64Array(size);
    this.sum = new Float64Array(size);
    this.max = new Float64Array(size);
    this.over = new Float64Array(size);
  }
}

/**
 * Rolling statistics of a few features: sums in buckets of a minute, for an hour. Memory depends on the number of
 * features alone. Times are milliseconds of a clock that never steps back.
 */
export class FeatureWindows {
  readonly #features: readonly number[];
  readonly #places: ReadonlyMap<number, number>;
  readonly #threshold: number;
  readonly #buckets = new Map<number, Bucket>();

  constructor(features: readonly number[], threshold: number | null) {
    this.#features = features;
    this.#places = new Map(features.map((feature, place) => [feature, place]));
    this.#threshold = threshold ?? Infinity;
  }

  addRequest(nowMs: number): void {
    this.#bucketAt(nowMs).requests += 1;
  }

  addRows({ counts, indices, values }: SensedValues, nowMs: number): void {
    const bucket = this.#bucketAt(nowMs);
    bucket.rows += counts.length;
    indices.forEach((feature, entry) => {
      const place = this.#places.get(feature);
      const value = values[entry] ?? 0;
      if (place === undefined || value <= 0) return;
      raise(bucket.count, place, 1);
      raise(bucket.sum, place, value);
      if (value > (bucket.max[place] ?? 0)) bucket.max[place] = value;
      if (value > this.#threshold) raise(bucket.over, place, 1);
    });
  }

  /** The newest `minutes` buckets together, the one that is being filled among them. */
  totals(minutes: number, nowMs: number): WindowFigures {
    const sum = new Bucket(this.#features.length);
    for (const [, bucket] of this.#newest(minutes, nowMs)) {
      sum.requests += bucket.requests;
      sum.rows += bucket.rows;
      this.#features.forEach((_, place) => {
        raise(sum.count, place, bucket.count[place] ?? 0);
        raise(sum.sum, place, bucket.sum[place] ?? 0);
        raise(sum.over, place, bucket.over[place] ?? 0);
        sum.max[place] = Math.max(sum.max[place] ?? 0, bucket.max[place] ?? 0);
      });
    }
    return this.#figures(sum);
  }

  /** The buckets one by one, oldest first; those in which nothing ran are left out. */
  series(minutes: number, nowMs: number): BucketFigures[] {
    return this.#newest(minutes, nowMs).map(([number, bucket]) => ({
      start_ms: number * BUCKET_MS,
      ...this.#figures(bucket),
    }));
  }

  #newest(minutes: number, nowMs: number): [number, Bucket][] {
    const oldest = numberAt(nowMs) - Math.min(minutes, KEPT_BUCKETS);
    return [...this.#buckets].filter(([number]) => number > oldest);
  }

  #bucketAt(nowMs: number): Bucket {
    const number = numberAt(nowMs);
    const found = this.#buckets.get(number);
    if (found !== undefined) return found;
    for (const old of this.#buckets.keys()) if (old <= number - KEPT_BUCKETS) this.#buckets.delete(old);
    const made = new Bucket(this.#features.length);
    this.#buckets.set(number, made);
    return made;
  }

  #figures({ requests, rows, count, sum, max, over }: Bucket): WindowFigures {
    const features = this.#features.map((index, place) => {
      const active = count[place] ?? 0;
      return {
        index,
        count: active,
        mean: active === 0 ? null : (sum[place] ?? 0) / active,
        max: active === 0 ? null : (max[place] ?? 0),
        density: rows === 0 ? null : active / rows,
        over_threshold: over[place] ?? 0,
      };
    });
    return { requests, rows, features };
  }
}

const numberAt = (nowMs: number): number => Math.floor(nowMs / BUCKET_MS);

function raise(sums: Float64Array, place: number, by: number): void {
  sums[place] = (sums[place] ?? 0) + by;
}
