import { ApiError } from "../../shared/errors/api-error.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Sha256 } from "./sha256.ts";
import { VerdictCache, type VerdictCacheSettings } from "./verdict-cache.ts";

export interface CredentialVerifierDeps {
  readonly clock: Clock;
  readonly sha256: Sha256;
  readonly settings: VerdictCacheSettings;
}

/**
 * Asks about credentials as rarely as possible: verdicts are cached, callers with the same credential share one
 * question, and what is cached goes on working while the store is away.
 */
export class CredentialVerifier<Value> {
  readonly #deps: CredentialVerifierDeps;
  readonly #look: (credential: string) => Promise<Value | null>;
  readonly #cache: VerdictCache<Value>;
  readonly #asking = new Map<string, Promise<Value | null>>();
  /** Grows when the cache is emptied: an answer that was asked for before that is not kept. */
  #generation = 0;

  /** `look` asks the store, and rejects when that is away. */
  constructor(deps: CredentialVerifierDeps, look: (credential: string) => Promise<Value | null>) {
    this.#deps = deps;
    this.#look = look;
    this.#cache = new VerdictCache(deps.settings);
  }

  /** Null when the credential is not valid. Rejects with ApiError authentication_unavailable. */
  async verify(credential: string): Promise<Value | null> {
    const key = await this.#deps.sha256(credential);
    const known = this.#cache.fresh(key, this.#deps.clock.monotonicMs());
    if (known !== null) return known.value;
    const running = this.#asking.get(key);
    if (running !== undefined) return running;
    const asking = this.#ask(key, credential).finally(() => {
      if (this.#asking.get(key) === asking) this.#asking.delete(key);
    });
    this.#asking.set(key, asking);
    return asking;
  }

  /** Forgets every verdict, those that are being asked for included. */
  forget(): void {
    this.#generation += 1;
    this.#cache.clear();
    this.#asking.clear();
  }

  async #ask(key: string, credential: string): Promise<Value | null> {
    const generation = this.#generation;
    try {
      const value = await this.#look(credential);
      if (generation === this.#generation) {
        this.#cache.set(key, { value, foundAtMs: this.#deps.clock.monotonicMs() });
      }
      return value;
    } catch (thrown) {
      const known = this.#cache.stale(key, this.#deps.clock.monotonicMs());
      if (known !== null) return known.value;
      throw new ApiError("authentication_unavailable", { retryAfterSeconds: 2, cause: thrown });
    }
  }
}
