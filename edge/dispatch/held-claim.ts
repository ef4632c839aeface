import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Claim, ClaimResult, Coordinator, SettleRequest, UsedTokens } from "../ports/coordinator.ts";

/** A claim in use: renewed well before it would run out, and released exactly once. */
export class HeldClaim {
  readonly #coordinator: Coordinator;
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #pool: string;
  readonly #claim: Claim;
  readonly #renewEveryMs: number;
  #cancelRenewal: () => void = () => undefined;
  #released = false;

  constructor(deps: { coordinator: Coordinator; clock: Clock; logger: Logger }, pool: string, claim: Claim) {
    this.#coordinator = deps.coordinator;
    this.#clock = deps.clock;
    this.#logger = deps.logger;
    this.#pool = pool;
    this.#claim = claim;
    this.#renewEveryMs = Math.max(1_000, (claim.expiresAtMs - deps.clock.nowMs()) / 3);
    this.#scheduleRenewal();
  }

  release(
    result: ClaimResult,
    busyForMs: number | null,
    tokens: UsedTokens | null,
    pace: SettleRequest["pace"] | null = null,
  ): void {
    if (this.#released) return;
    this.#released = true;
    this.#cancelRenewal();
    const pool = this.#pool;
    const { claimId } = this.#claim;
    const isPlain = busyForMs === null && (pace ?? null) === null;
    const ended: SettleRequest =
      isPlain && tokens !== null
        ? { pool, claimId, result, tokens }
        : {
            pool,
            claimId,
            result,
            ...(busyForMs === null ? {} : { busyForMs }),
            ...(tokens === null ? {} : { tokens }),
            ...(pace === null || pace === undefined ? {} : { pace }),
          };
    this.#coordinator
      .settle(ended)
      .catch((thrown: unknown) => this.#logger.error("a claim could not be released", this.#fields(), thrown));
  }

  #scheduleRenewal(): void {
    this.#cancelRenewal = this.#clock.after(this.#renewEveryMs, () => {
      this.#coordinator
        .renew(this.#pool, [this.#claim.claimId])
        .catch((thrown: unknown) => this.#logger.error("a claim could not be renewed", this.#fields(), thrown));
      this.#scheduleRenewal();
    });
  }

  #fields(): Record<string, string> {
    return { claim: this.#claim.claimId, pool: this.#pool };
  }
}
