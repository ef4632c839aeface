import { DurableObject } from "cloudflare:workers";
import { AccountLimits } from "../limits/account-limits.ts";
import { spendingOf } from "../limits/scopes.ts";
import type {
  InspectLimits,
  LimitsView,
  ReserveDecision,
  ReserveRequest,
  SettleReservation,
  SpentMoney,
} from "../ports/limits.ts";
import { isIncluded, type ToldPlace } from "../limits/told-place.ts";
import { limitDefaults } from "../web/settings-of-config.ts";
import { workersClock } from "./clock.workers.ts";
import { settingsOf, type WorkerEnv } from "./env.ts";
import { LEDGER_OBJECT_NAME } from "./ledger-object.ts";

/**
 * The limits of one account. Rates start anew with the object; what was spent is read from the ledger first, so that
 * budgets outlive it.
 */
export class LimitsObject extends DurableObject<WorkerEnv> {
  readonly #limits: AccountLimits;
  #seeded: Promise<ToldPlace> | null = null;

  constructor(state: DurableObjectState, env: WorkerEnv) {
    super(state, env);
    this.#limits = new AccountLimits(limitDefaults(settingsOf(env).config));
  }

  async reserve(request: ReserveRequest): Promise<ReserveDecision> {
    await this.#ready(request.account);
    return this.#limits.reserve(request, workersClock.monotonicMs());
  }

  async settle(request: SettleReservation): Promise<void> {
    this.#limits.settle(request, workersClock.monotonicMs());
  }

  /** What is not seeded yet has this in the rows it will be seeded from, so it is not added a second time. */
  async addSpent(_account: string, spent: readonly SpentMoney[], told: ToldPlace | null): Promise<void> {
    if (this.#seeded === null) return;
    const seededAt = await this.#seeded;
    if (told !== null && isIncluded(told, seededAt)) return;
    for (const money of spent) this.#limits.addSpent(money);
  }

  async inspect(request: InspectLimits): Promise<LimitsView> {
    await this.#ready(request.account);
    return this.#limits.inspect(request, workersClock.monotonicMs());
  }

  #ready(account: string): Promise<ToldPlace> {
    this.#seeded ??= this.#seed(account).catch((thrown: unknown) => {
      this.#seeded = null;
      throw thrown;
    });
    return this.#seeded;
  }

  /** From the ledger's own object, which knows what is on its way to the database. */
  async #seed(account: string): Promise<ToldPlace> {
    const { spent, told } = await this.env.LEDGER.getByName(LEDGER_OBJECT_NAME).spentBy(account);
    for (const money of spendingOf(spent, workersClock.nowMs()).get(account) ?? []) this.#limits.addSpent(money);
    return told;
  }
}
