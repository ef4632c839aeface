import { TransientMap } from "../../shared/transient-map.ts";
import type { PromptPrefix } from "../ports/coordinator.ts";

/** A promise of one slot, until it is settled or nobody renews it. */
export interface HeldClaim {
  readonly claimId: string;
  readonly replicaKey: string;
  readonly band: string;
  readonly project: string;
  /** What the machine was believed to know from now on. */
  readonly prefix: PromptPrefix | null;
  /** Work for which the project was charged in advance. */
  readonly charged: number;
  readonly chargedAtMs: number;
  readonly expiresAtMs: number;
}

/** Claims held in a pool. All live equally long from their last renewal, so their order is that of their expiry. */
export class Claims {
  readonly #claims = new TransientMap<string, HeldClaim>();

  get size(): number {
    return this.#claims.size;
  }

  /** Infinity when none is held. */
  get nextExpiryMs(): number {
    return this.#claims.first()?.expiresAtMs ?? Infinity;
  }

  add(claim: HeldClaim): void {
    this.#claims.set(claim.claimId, claim);
  }

  renew(claimId: string, expiresAtMs: number): void {
    const claim = this.take(claimId);
    if (claim !== undefined) this.add({ ...claim, expiresAtMs });
  }

  /** Once: a second call finds nothing. */
  take(claimId: string): HeldClaim | undefined {
    return this.#claims.take(claimId);
  }

  takeExpired(nowMs: number): readonly HeldClaim[] {
    const expired: HeldClaim[] = [];
    for (;;) {
      const oldest = this.#claims.first();
      if (oldest === undefined || oldest.expiresAtMs > nowMs) return expired;
      this.#claims.delete(oldest.claimId);
      expired.push(oldest);
    }
  }
}
