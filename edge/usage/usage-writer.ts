import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { UsageBatch, UsageStore } from "../ports/usage-store.ts";
import type { LedgerBook } from "./ledger-book.ts";

export interface UsageWriterDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: Pick<UsageStore, "record">;
  readonly book: LedgerBook;
  /** Requests per transaction. */
  readonly batchSize: number;
  /** Brings back what waits in the journal only; false when there is nothing. */
  readonly readSpilled: () => Promise<boolean>;
  /** The database takes others but not this one. */
  readonly refused: (requestId: string, reason: string) => void;
}

const LONGEST_BACK_OFF_MS = 30_000;
/** What was refused is tried again: the operator may have mended what stood against it. */
const TRY_REFUSED_EVERY_MS = 600_000;
/** A request that is alone is only known to be refused when it failed so often while the database took nothing else ill. */
const TRIES_ALONE = 3;
const NOTHING: UsageBatch = { usage: [], attempts: [], counters: [], lateReports: [] };

/**
 * Moves the book's rows to the database. A database that is away is asked again with growing pauses; one that takes
 * others but refuses a request's rows does not keep the others waiting: that request is set aside, stays in the journal,
 * and is named.
 */
export class UsageWriter {
  readonly #deps: UsageWriterDeps;
  readonly #failedAlone = new Map<string, number>();
  readonly #told = new Set<string>();
  #backOffMs = 0;
  #againAtMs = 0;
  #refusedAgainAtMs = Infinity;

  constructor(deps: UsageWriterDeps) {
    this.#deps = deps;
  }

  get isBackingOff(): boolean {
    return this.#backOffMs > 0;
  }

  /** The next `write` does not wait for the end of a pause. */
  hurry(): void {
    this.#againAtMs = 0;
  }

  /** Goes on while at least `least` requests wait, or till nothing does. Never rejects. */
  async write(least = 0): Promise<void> {
    const { clock, logger, book, batchSize, readSpilled } = this.#deps;
    const nowMs = clock.monotonicMs();
    if (nowMs < this.#againAtMs) return;
    if (nowMs >= this.#refusedAgainAtMs) {
      this.#refusedAgainAtMs = Infinity;
      book.bringBack();
    }
    if (this.#backOffMs > 0) {
      const failure = await this.#record(NOTHING);
      if (failure !== null) {
        this.#backOff(failure);
        return;
      }
    }
    for (;;) {
      if (book.waitingRows < least) return;
      const taken = book.take(batchSize);
      if (taken === null) {
        if (await readSpilled()) continue;
        return;
      }
      const failure = await this.#record(taken.batch);
      if (failure === null) {
        taken.confirm();
        if (this.#backOffMs > 0) logger.info("usage goes to the database again");
        this.#backOffMs = 0;
      } else if ((await this.#record(NOTHING)) !== null || !(await this.#oneByOne(taken.requestIds.length))) {
        this.#backOff(failure);
        return;
      }
    }
  }

  /** The database is there, so it is the rows: finds those at fault. False when none could be told apart. */
  async #oneByOne(requests: number): Promise<boolean> {
    const { book } = this.#deps;
    const failed = new Map<string, Error>();
    let isSome = false;
    for (let turn = 0; turn < requests; turn += 1) {
      const taken = book.take(1);
      const [requestId] = taken?.requestIds ?? [];
      if (taken === null || requestId === undefined) break;
      const failure = await this.#record(taken.batch);
      if (failure === null) {
        taken.confirm();
        isSome = true;
      } else {
        book.setAside(requestId);
        failed.set(requestId, failure);
      }
    }
    for (const [requestId, failure] of failed) {
      const tries = (this.#failedAlone.get(requestId) ?? 0) + 1;
      if (isSome || tries >= TRIES_ALONE) {
        this.#failedAlone.delete(requestId);
        this.#refuse(requestId, failure);
        isSome = true;
      } else {
        this.#failedAlone.set(requestId, tries);
        book.bringBack(requestId);
      }
    }
    return isSome;
  }

  #refuse(requestId: string, failure: Error): void {
    const { clock, logger, refused } = this.#deps;
    this.#refusedAgainAtMs = Math.min(this.#refusedAgainAtMs, clock.monotonicMs() + TRY_REFUSED_EVERY_MS);
    if (this.#told.has(requestId)) return;
    this.#told.add(requestId);
    logger.error(
      "the database refuses the usage of a request; it stays in the journal, and `usage check` names it",
      { request_id: requestId },
      failure,
    );
    refused(requestId, failure.message);
  }

  #backOff(failure: Error): void {
    const { clock, logger } = this.#deps;
    if (this.#backOffMs === 0) logger.error("usage stays in the journal: the database refuses it", {}, failure);
    this.#backOffMs = Math.min(Math.max(this.#backOffMs * 2, 1_000), LONGEST_BACK_OFF_MS);
    this.#againAtMs = clock.monotonicMs() + this.#backOffMs;
  }

  async #record(batch: UsageBatch): Promise<Error | null> {
    try {
      await this.#deps.store.record(batch);
      return null;
    } catch (thrown) {
      return thrown instanceof Error ? thrown : new Error(String(thrown));
    }
  }
}
