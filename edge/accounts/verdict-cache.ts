/** What was found out about a credential, and when by the monotonic clock. Null: it is not valid. */
export interface Verdict<Value> {
  readonly value: Value | null;
  readonly foundAtMs: number;
}

export interface VerdictCacheSettings {
  /** How long a good verdict is used without asking again. */
  readonly cacheTtlMs: number;
  readonly negativeTtlMs: number;
  /** How long a good verdict may be used when the store cannot be asked. */
  readonly staleIfErrorMs: number;
  /** Good and bad verdicts are bounded apart, so that guesses cannot push out the keys of callers. */
  readonly maxEntries: number;
}

/** Verdicts by the SHA-256 of the whole credential, least recently used first out. Holds no secret. */
export class VerdictCache<Value> {
  #settings: VerdictCacheSettings;
  readonly #good = new Map<string, Verdict<Value>>();
  readonly #bad = new Map<string, Verdict<Value>>();
  #generation = 0;

  constructor(settings: VerdictCacheSettings) {
    this.#settings = settings;
  }

  /** Ages are judged anew; no verdict is forgotten. */
  reconfigure(settings: VerdictCacheSettings): void {
    this.#settings = settings;
  }

  /** A verdict that may be used now without asking. */
  fresh(credentialSha256: string, nowMs: number): Verdict<Value> | null {
    const good = this.#good.get(credentialSha256);
    if (good !== undefined && nowMs - good.foundAtMs < this.#settings.cacheTtlMs) {
      touch(this.#good, credentialSha256, good);
      return good;
    }
    const bad = this.#bad.get(credentialSha256);
    if (bad === undefined) return null;
    if (nowMs - bad.foundAtMs < this.#settings.negativeTtlMs) return bad;
    this.#bad.delete(credentialSha256);
    return null;
  }

  /** A good verdict that may be used because the store is away. */
  stale(credentialSha256: string, nowMs: number): Verdict<Value> | null {
    const good = this.#good.get(credentialSha256);
    return good !== undefined && nowMs - good.foundAtMs < this.#settings.staleIfErrorMs ? good : null;
  }

  set(credentialSha256: string, verdict: Verdict<Value>): void {
    this.#good.delete(credentialSha256);
    this.#bad.delete(credentialSha256);
    const entries = verdict.value === null ? this.#bad : this.#good;
    entries.set(credentialSha256, verdict);
    if (entries.size > this.#settings.maxEntries) {
      for (const oldest of entries.keys()) {
        entries.delete(oldest);
        break;
      }
    }
  }

  /** Grows when the cache is emptied: an answer that was asked for before that must not be kept. */
  get generation(): number {
    return this.#generation;
  }

  clear(): void {
    this.#generation++;
    this.#good.clear();
    this.#bad.clear();
  }
}

function touch<Value>(entries: Map<string, Value>, key: string, value: Value): void {
  entries.delete(key);
  entries.set(key, value);
}
