import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { EdgeIdentity } from "../ports/edge-store.ts";
import type {
  InspectLimits,
  Limits,
  LimitsView,
  RateLimitState,
  ReserveDecision,
  ReserveRequest,
  SettleReservation,
  SpentMoney,
} from "../ports/limits.ts";
import type { SliceAnswer, SliceStore } from "../ports/slice-store.ts";
import { refusalOf } from "./block.ts";
import { EdgeSlices, type SliceNeed } from "./edge-slices.ts";
import type { MemoryLimits } from "./limits.memory.ts";
import { blockOf, sharedState, sharedView } from "./shared-view.ts";

export interface SharedLimitsDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  /** What this edge alone knows and decides: its own requests against the full limits. */
  readonly own: MemoryLimits;
  readonly store: SliceStore;
  readonly identity: EdgeIdentity;
  readonly membership: {
    /** Somebody else is there, or was lately. */
    readonly hasOthers: boolean;
    share(): void;
  };
  readonly ledger: {
    /** What is settled goes to the database. */
    flush(): Promise<void>;
    /** Whether requests of a former run may still be written. */
    readonly hasFormer: boolean;
  };
}

const RENEW_EVERY_MS = 1_000;
/** Longest that a request waits for a slice. */
const WAIT_MS = 2_500;
/** The others give back within this what somebody waits for. */
const RETURN_MS = 1_500;
const ASK_AGAIN_MS = 250;
/** What a former run spent is in the database after this, even if that was away for a moment. */
const FORMER_KEPT_MS = 60_000;
const AWAY_RETRY_AFTER_SECONDS = 5;

/**
 * The limits of an edge that is not alone on its database. Alone it is exactly `own`. With others, every request also
 * takes from this edge's slices, which are renewed in the background; only when one is used up does a request wait for
 * the database, and not for long. What is granted or spent by others counts through the database.
 */
export class SharedLimits implements Limits {
  readonly #deps: SharedLimitsDeps;
  readonly #slices = new EdgeSlices();
  #sharing = false;
  #isFirst = true;
  #hasFormer = true;
  #formerSinceMs: number;
  #awaySinceMs: number | null = null;
  #refilledAloneAtMs = 0;
  #asking: Promise<void> | null = null;
  #stopped = false;
  #cancelTimer = (): void => undefined;

  constructor(deps: SharedLimitsDeps) {
    this.#deps = deps;
    this.#formerSinceMs = deps.clock.monotonicMs();
  }

  /**
   * Begins. Where others are there it waits, at most `limitMs`, until all of them share: before that nothing of a limit
   * can be had.
   */
  async start(limitMs: number): Promise<void> {
    const { clock } = this.#deps;
    const untilMs = clock.monotonicMs() + limitMs;
    await this.#renew();
    while (this.#sharing && this.#isFirst && clock.monotonicMs() < untilMs) {
      await this.#pause(ASK_AGAIN_MS);
      await this.#ask();
    }
    this.#schedule();
  }

  async reserve(request: ReserveRequest): Promise<ReserveDecision> {
    const { clock, own } = this.#deps;
    const { decision, needs } = own.reserveWithNeeds(request);
    if (decision.kind === "refused") return decision;
    if (!this.#sharing) {
      this.#slices.takeAnyway(request.requestId, needs, clock.monotonicMs());
      return decision;
    }
    const refusal = await this.#take(request.requestId, needs, decision.state);
    const state = this.#stateOf(needs, decision.state);
    if (refusal === null) {
      if (this.#slices.isLow) void this.#ask();
      return { ...decision, state };
    }
    await own.settle({
      account: request.account,
      reservationId: decision.reservationId,
      totalTokens: 0,
      completionTokens: 0,
      costNanoUsd: "0",
      uncounted: true,
    });
    return { ...refusal, state };
  }

  reconfigure(...settings: Parameters<MemoryLimits["reconfigure"]>): void {
    this.#deps.own.reconfigure(...settings);
  }

  async settle(request: SettleReservation): Promise<void> {
    const { reservationId, totalTokens, costNanoUsd, uncounted } = request;
    this.#slices.settle(reservationId, {
      totalTokens,
      costNanoUsd: BigInt(costNanoUsd),
      uncounted: uncounted === true,
    });
    await this.#deps.own.settle(request);
  }

  addSpent(account: string, spent: readonly SpentMoney[]): Promise<void> {
    return this.#deps.own.addSpent(account, spent);
  }

  async inspect(request: InspectLimits): Promise<LimitsView> {
    const view = await this.#deps.own.inspect(request);
    return this.#sharing ? sharedView(view, this.#slices, request.atMs, this.#deps.clock.monotonicMs()) : view;
  }

  /** Rows of these requests are in the database: for the ledger. */
  recorded(requestIds: readonly string[]): void {
    for (const requestId of requestIds) this.#slices.recorded(requestId);
  }

  /** The most that a running request may still cost. */
  reservedNanoUsd(requestId: string): bigint {
    return this.#slices.reservedNanoUsd(requestId) ?? 0n;
  }

  /** Gives back everything but what running requests hold. */
  async close(): Promise<void> {
    this.#stopped = true;
    this.#cancelTimer();
    await this.#asking;
    if (!this.#sharing) return;
    this.#slices.endSharing();
    await this.#ask();
  }

  /** Null when everything was taken. */
  async #take(
    requestId: string,
    needs: readonly SliceNeed[],
    state: RateLimitState,
  ): Promise<Extract<ReserveDecision, { kind: "refused" }> | null> {
    const { clock } = this.#deps;
    const untilMs = clock.monotonicMs() + WAIT_MS;
    for (let rounds = 0; ; rounds += 1) {
      const nowMs = clock.monotonicMs();
      const missing = this.#slices.take(requestId, needs, nowMs);
      if (missing.length === 0) return null;
      const isOver = nowMs >= untilMs;
      if (isOver && this.#asking !== null) this.#away("the database takes too long");
      if (this.#awaySinceMs !== null || (isOver && this.#isFirst)) return this.#unavailable(missing, state);
      if (rounds > 0) {
        const patience = { nowMs, returnMs: RETURN_MS, isOver };
        const blocks = missing.flatMap((need) => blockOf(need, this.#slices, patience));
        if (blocks.length > 0) return asRefused(refusalOf(blocks, state));
        await this.#pause(ASK_AGAIN_MS);
      }
      // All of it, lest what is there goes back as idle meanwhile.
      this.#slices.await(needs, nowMs);
      await this.#withinWait(this.#askAnew(), untilMs);
    }
  }

  /** Without the database rates are known by this edge's part of them; of a budget nothing more can be had. */
  #unavailable(missing: readonly SliceNeed[], state: RateLimitState): Extract<ReserveDecision, { kind: "refused" }> {
    const nowMs = this.#deps.clock.monotonicMs();
    const rates = missing.filter((need) => need.kind === "rate");
    const blocks = rates.flatMap((need) => blockOf(need, this.#slices, { nowMs, returnMs: 0, isOver: true }));
    if (blocks.length === missing.length) return asRefused(refusalOf(blocks, state));
    return {
      kind: "refused",
      code: "limits_unavailable",
      message: "What is left of the budget cannot be told at the moment.",
      retryAfterSeconds: AWAY_RETRY_AFTER_SECONDS,
      state,
    };
  }

  #stateOf(needs: readonly SliceNeed[], state: RateLimitState): RateLimitState {
    return sharedState(needs, this.#slices, state, this.#deps.clock.monotonicMs());
  }

  /** A round that begins now or after the one that is on its way, so that what waits is in it. */
  async #askAnew(): Promise<void> {
    await this.#asking;
    await this.#ask();
  }

  #ask(): Promise<void> {
    this.#asking ??= this.#round().finally(() => {
      this.#asking = null;
    });
    return this.#asking;
  }

  /** One exchange with the database. Never rejects. */
  async #round(): Promise<void> {
    const { clock, logger, own, store, identity, membership, ledger } = this.#deps;
    // What is spent must count in the database before what is held shrinks by it.
    if (this.#isFirst) await ledger.flush();
    const isFirst = this.#isFirst;
    // The first time the database does not know of this edge's requests.
    const asked = this.#slices.asks(clock.monotonicMs(), (scope, resource, perMinute) =>
      isFirst ? own.leftOf(scope, resource, perMinute) : null,
    );
    if (!isFirst && this.#awaySinceMs === null && asked.rates.length + asked.budgets.length === 0) return;
    let answer: SliceAnswer;
    try {
      answer = await store.takeSlices({ edge: identity, ...asked });
    } catch (thrown) {
      this.#slices.failed(asked);
      this.#away(thrown instanceof Error ? thrown.message : String(thrown));
      return;
    }
    if (answer.kind === "lost") {
      this.#slices.failed(asked);
      this.#away("another process has this edge's name");
      return;
    }
    if (this.#awaySinceMs !== null) {
      logger.info("limits are shared again");
      this.#awaySinceMs = null;
      this.#slices.forgetCredit();
    }
    membership.share();
    this.#slices.apply(asked, answer, clock.monotonicMs());
    if (answer.waitsFor === null) this.#isFirst = false;
  }

  #away(reason: string): void {
    if (this.#awaySinceMs !== null) return;
    const { clock, logger } = this.#deps;
    this.#awaySinceMs = clock.monotonicMs();
    this.#refilledAloneAtMs = this.#awaySinceMs;
    this.#slices.refillAlone(RENEW_EVERY_MS);
    logger.warn("limits cannot be shared; this edge goes on with its part of the rates and what it holds of budgets", {
      reason,
    });
  }

  async #renew(): Promise<void> {
    const { clock, logger, membership, store, identity, ledger } = this.#deps;
    if (!this.#sharing && membership.hasOthers) {
      this.#sharing = true;
      this.#slices.beginSharing();
      logger.info("limits are shared with other edges from now on");
    }
    if (this.#sharing) await this.#ask();
    else this.#slices.prune(clock.monotonicMs());
    if (this.#awaySinceMs !== null) {
      const awayNowMs = clock.monotonicMs();
      this.#slices.refillAlone(awayNowMs - this.#refilledAloneAtMs);
      this.#refilledAloneAtMs = awayNowMs;
    }
    const nowMs = clock.monotonicMs();
    if (ledger.hasFormer) this.#formerSinceMs = nowMs;
    if (this.#hasFormer && nowMs - this.#formerSinceMs >= FORMER_KEPT_MS) {
      await store.dropFormerSlices(identity.name).then(
        () => (this.#hasFormer = false),
        () => undefined,
      );
    }
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#cancelTimer = this.#deps.clock.after(RENEW_EVERY_MS, () => void this.#renew().then(() => this.#schedule()));
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => this.#deps.clock.after(ms, resolve));
  }

  #withinWait(work: Promise<void>, untilMs: number): Promise<void> {
    const { clock } = this.#deps;
    return new Promise((resolve) => {
      const cancel = clock.after(Math.max(0, untilMs - clock.monotonicMs()), resolve);
      void work.finally(cancel).then(resolve, resolve);
    });
  }
}

function asRefused(decision: ReserveDecision): Extract<ReserveDecision, { kind: "refused" }> {
  if (decision.kind !== "refused") throw new Error("a block refuses");
  return decision;
}
