import type { Clock } from "../../shared/time/clock.ts";
import type { Limits, ReserveDecision, ReserveRequest, SettleReservation } from "../ports/limits.ts";
import { AccountLimits, type LimitDefaults } from "./account-limits.ts";

/** The one owner of every account's limits in this process. */
export class MemoryLimits implements Limits {
  readonly #clock: Pick<Clock, "monotonicMs">;
  readonly #defaults: LimitDefaults;
  readonly #accounts = new Map<string, AccountLimits>();

  constructor(clock: Pick<Clock, "monotonicMs">, defaults: LimitDefaults) {
    this.#clock = clock;
    this.#defaults = defaults;
  }

  reserve(request: ReserveRequest): Promise<ReserveDecision> {
    return Promise.resolve(this.#account(request.account).reserve(request, this.#clock.monotonicMs()));
  }

  settle(request: SettleReservation): Promise<void> {
    this.#account(request.account).settle(request, this.#clock.monotonicMs());
    return Promise.resolve();
  }

  /** Adds up: told once from the ledger at the start, and again for what the ledger adjusts later. */
  seedSpent(account: string, spentNanoUsdByScope: Readonly<Record<string, string>>): Promise<void> {
    const limits = this.#account(account);
    for (const [scopeId, nanoUsd] of Object.entries(spentNanoUsdByScope)) limits.addSpent(scopeId, BigInt(nanoUsd));
    return Promise.resolve();
  }

  #account(account: string): AccountLimits {
    let limits = this.#accounts.get(account);
    if (limits === undefined) {
      limits = new AccountLimits(this.#defaults);
      this.#accounts.set(account, limits);
    }
    return limits;
  }
}
