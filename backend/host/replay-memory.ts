/** What became of a token id that was shown. `full`: nothing can be remembered now, so nothing may be let in. */
export type ReplayVerdict = "fresh" | "replayed" | "full";

/** Remembers token ids until their tokens expire; bounded, and never by forgetting one that could be replayed. */
export class ReplayMemory {
  readonly #limit: number;
  readonly #expiresAtMs = new Map<string, number>();

  constructor(limit = 100_000) {
    this.#limit = limit;
  }

  get size(): number {
    return this.#expiresAtMs.size;
  }

  take(id: string, expiresAtMs: number, nowMs: number): ReplayVerdict {
    const known = this.#expiresAtMs.get(id);
    if (known !== undefined && known > nowMs) return "replayed";
    if (this.#expiresAtMs.size >= this.#limit) this.#forgetExpired(nowMs);
    if (this.#expiresAtMs.size >= this.#limit) return "full";
    this.#expiresAtMs.delete(id);
    this.#expiresAtMs.set(id, expiresAtMs);
    return "fresh";
  }

  #forgetExpired(nowMs: number): void {
    for (const [id, expiresAtMs] of this.#expiresAtMs) if (expiresAtMs <= nowMs) this.#expiresAtMs.delete(id);
  }
}
