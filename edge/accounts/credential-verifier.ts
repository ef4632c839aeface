import { ApiError } from "../../shared/errors/api-error.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Sha256 } from "./sha256.ts";
import type { VerdictCache } from "./verdict-cache.ts";

export interface CredentialVerifierDeps {
  readonly clock: Clock;
  readonly sha256: Sha256;
}

/** How long callers whose credential is known wait for a store that neither answers nor fails. */
export const PATIENCE_MS = 500;

interface Question<Value> {
  readonly answer: Promise<Value | null>;
  readonly askedAtMs: number;
}

/**
 * Asks about credentials as rarely as possible: verdicts are cached, callers with the same credential share one
 * question, and what is cached goes on working while the store is away or does not answer.
 */
export class CredentialVerifier<Value> {
  readonly #deps: CredentialVerifierDeps;
  readonly #look: (credential: string) => Promise<Value | null>;
  readonly #cache: VerdictCache<Value>;
  readonly #asking = new Map<string, Question<Value>>();

  /** `look` asks the store, and rejects when that is away. `cache` may outlive this verifier. */
  constructor(
    deps: CredentialVerifierDeps,
    look: (credential: string) => Promise<Value | null>,
    cache: VerdictCache<Value>,
  ) {
    this.#deps = deps;
    this.#look = look;
    this.#cache = cache;
  }

  /** Null when the credential is not valid. Rejects with ApiError authentication_unavailable. */
  async verify(credential: string): Promise<Value | null> {
    const key = await this.#deps.sha256(credential);
    const nowMs = this.#deps.clock.monotonicMs();
    const fresh = this.#cache.fresh(key, nowMs);
    if (fresh !== null) return fresh.value;
    const question = this.#asking.get(key) ?? this.#begin(key, credential, nowMs);
    const known = this.#cache.stale(key, nowMs);
    if (known === null) return question.answer;
    return this.#soon(question.answer, known.value, question.askedAtMs + PATIENCE_MS - nowMs);
  }

  /** Forgets every verdict, those that are being asked for included. */
  forget(): void {
    this.#cache.clear();
    this.#asking.clear();
  }

  #begin(key: string, credential: string, askedAtMs: number): Question<Value> {
    const answer = this.#ask(key, credential).finally(() => {
      if (this.#asking.get(key) === question) this.#asking.delete(key);
    });
    const question = { answer, askedAtMs };
    this.#asking.set(key, question);
    return question;
  }

  /** The answer, or what is known when it does not come in time. */
  #soon(answer: Promise<Value | null>, known: Value | null, patienceMs: number): Promise<Value | null> {
    return new Promise((resolve, reject) => {
      const cancel = this.#deps.clock.after(Math.max(0, patienceMs), () => resolve(known));
      answer.finally(cancel).then(resolve, reject);
    });
  }

  async #ask(key: string, credential: string): Promise<Value | null> {
    const { generation } = this.#cache;
    try {
      const value = await this.#look(credential);
      if (generation === this.#cache.generation) {
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
