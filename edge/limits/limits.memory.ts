import type { Clock } from "../../shared/time/clock.ts";
import type {
  InspectLimits,
  Limits,
  LimitsView,
  ReserveDecision,
  ReserveRequest,
  SettleReservation,
  SpentMoney,
} from "../ports/limits.ts";
import type { RateResource } from "../ports/slice-store.ts";
import { AccountLimits, type LimitDefaults } from "./account-limits.ts";

/** The one owner of every account's limits in this process. */
export class MemoryLimits implements Limits {
  readonly #clock: Pick<Clock, "monotonicMs">;
  #defaults: LimitDefaults;
  readonly #accounts = new Map<string, AccountLimits>();

  constructor(clock: Pick<Clock, "monotonicMs">, defaults: LimitDefaults) {
    this.#clock = clock;
    this.#defaults = defaults;
  }

  /** For requests from now on; what was taken stays taken. */
  reconfigure(defaults: LimitDefaults): void {
    this.#defaults = defaults;
    for (const limits of this.#accounts.values()) limits.reconfigure(defaults);
  }

  reserve(request: ReserveRequest): Promise<ReserveDecision> {
    return Promise.resolve(this.#account(request.account).reserve(request, this.#clock.monotonicMs()));
  }

  settle(request: SettleReservation): Promise<void> {
    this.#account(request.account).settle(request, this.#clock.monotonicMs());
    return Promise.resolve();
  }

  /** At once, with what the request takes of each limit. */
  reserveWithNeeds(request: ReserveRequest): ReturnType<AccountLimits["reserveWithNeeds"]> {
    return this.#account(request.account).reserveWithNeeds(request, this.#clock.monotonicMs());
  }

  /** What is left of a scope's rate by the requests of this process; null where it made none. */
  leftOf(scope: string, resource: RateResource, perMinute: number): number | null {
    for (const limits of this.#accounts.values()) {
      const left = limits.leftOf(scope, resource, perMinute, this.#clock.monotonicMs());
      if (left !== null) return left;
    }
    return null;
  }

  addSpent(account: string, spent: readonly SpentMoney[]): Promise<void> {
    const limits = this.#account(account);
    for (const money of spent) limits.addSpent(money);
    return Promise.resolve();
  }

  inspect(request: InspectLimits): Promise<LimitsView> {
    return Promise.resolve(this.#account(request.account).inspect(request, this.#clock.monotonicMs()));
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
