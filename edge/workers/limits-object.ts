import { DurableObject } from "cloudflare:workers";
import { AccountLimits } from "../limits/account-limits.ts";
import { spendingByScope } from "../limits/scopes.ts";
import type { ReserveDecision, ReserveRequest, SettleReservation } from "../ports/limits.ts";
import { limitDefaults } from "../web/settings-of-config.ts";
import { workersClock } from "./clock.workers.ts";
import { settingsOf, type WorkerEnv } from "./env.ts";
import { storeOf } from "./store.workers.ts";

/**
 * The limits of one account. Rates start anew with the object; what was spent is read from the ledger first, so that
 * budgets outlive it.
 */
export class LimitsObject extends DurableObject<WorkerEnv> {
  readonly #limits: AccountLimits;
  #seeded: Promise<void> | null = null;

  constructor(state: DurableObjectState, env: WorkerEnv) {
    super(state, env);
    this.#limits = new AccountLimits(limitDefaults(settingsOf(env).config));
  }

  async reserve(request: ReserveRequest): Promise<ReserveDecision> {
    this.#seeded ??= this.#seed(request.account).catch((thrown: unknown) => {
      this.#seeded = null;
      throw thrown;
    });
    await this.#seeded;
    return this.#limits.reserve(request, workersClock.monotonicMs());
  }

  async settle(request: SettleReservation): Promise<void> {
    this.#limits.settle(request, workersClock.monotonicMs());
  }

  async seedSpent(_account: string, spentNanoUsdByScope: Readonly<Record<string, string>>): Promise<void> {
    for (const [scope, nanoUsd] of Object.entries(spentNanoUsdByScope)) this.#limits.addSpent(scope, BigInt(nanoUsd));
  }

  async #seed(account: string): Promise<void> {
    const store = storeOf(settingsOf(this.env));
    try {
      const scopes = spendingByScope(await store.spent()).get(account) ?? {};
      await this.seedSpent(account, scopes);
    } finally {
      await store.close();
    }
  }
}
