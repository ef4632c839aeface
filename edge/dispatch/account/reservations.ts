import type { Logger } from "../../../shared/logging/logger.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import { TransientMap } from "../../../shared/transient-map.ts";
import type { OnSettled, TokenCounts } from "../../ports/ledger.ts";
import type { Limits } from "../../ports/limits.ts";

export interface HeldReservation {
  readonly requestId: string;
  readonly account: string;
  readonly reservationId: string;
}

export interface Spent {
  readonly counts: TokenCounts;
  readonly costNanoUsd: bigint;
  /** The request counts for no rate limit. */
  readonly uncounted?: boolean;
}

interface Open {
  readonly held: HeldReservation;
  readonly cancelTimer: () => void;
}

/**
 * Gives every reservation back exactly once: at once where the counts are final, else when the ledger learns them
 * from the machine's report, or after a while with our own count, so that none is held for ever.
 */
export class Reservations {
  readonly #limits: Limits;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #waitMs: number;
  readonly #open = new TransientMap<string, Open>();

  constructor(deps: { limits: Limits; clock: Clock; logger: Logger; waitMs: number }) {
    this.#limits = deps.limits;
    this.#clock = deps.clock;
    this.#logger = deps.logger;
    this.#waitMs = deps.waitMs;
  }

  /** Reservations that still wait for a machine's report. */
  get waiting(): number {
    return this.#open.size;
  }

  settle(held: HeldReservation, { counts, costNanoUsd, uncounted }: Spent): void {
    const settled = this.#limits.settle({
      account: held.account,
      reservationId: held.reservationId,
      totalTokens: counts.promptTokens + counts.completionTokens,
      completionTokens: counts.completionTokens,
      costNanoUsd: costNanoUsd.toString(),
      ...(uncounted === true ? { uncounted } : {}),
    });
    settled.catch((thrown: unknown) =>
      this.#logger.error("a reservation could not be settled", { request_id: held.requestId }, thrown),
    );
  }

  /** `own` is used when no report comes in time. */
  settleByReport(held: HeldReservation, own: Spent): void {
    // Nothing runs behind the request where nobody waits.
    if (this.#waitMs === 0) {
      this.settle(held, own);
      return;
    }
    const cancelTimer = this.#clock.after(this.#waitMs, () => this.#close(held.requestId, own));
    this.#open.set(held.requestId, { held, cancelTimer });
  }

  /** For the ledger, as its listener. */
  readonly onSettled: OnSettled = ({ requestId, counts, costNanoUsd }) =>
    this.#close(requestId, { counts, costNanoUsd });

  #close(requestId: string, spent: Spent): void {
    const open = this.#open.take(requestId);
    if (open === undefined) return;
    open.cancelTimer();
    this.settle(open.held, spent);
  }
}
