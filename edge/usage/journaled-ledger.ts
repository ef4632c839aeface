import { ApiError } from "../../shared/errors/api-error.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Journal } from "../ports/journal.ts";
import type { Ledger, OnSettled, OpenedRequest, SettledRequest, StartedAttempt } from "../ports/ledger.ts";
import type { UsageStore } from "../ports/usage-store.ts";
import { journalEntrySchema, type JournalEntry } from "./journal-entry.ts";
import { LedgerBook, type Settlement } from "./ledger-book.ts";
import { awaitsLastReport, orphanSettlement } from "./orphans.ts";
import { ledgerDifference } from "./proof.ts";
import { UsageWriter } from "./usage-writer.ts";
import { ownCostNanoUsd, unreportedOf, type RequestAccount } from "./request-account.ts";

export interface LedgerSettings {
  /** `auth.flush_interval`: how often the journal is made durable and rows go to the database. */
  readonly flushIntervalMs: number;
  /** `auth.batch_size`: requests per transaction. */
  readonly batchSize: number;
  /** `auth.buffer_size`: final requests that wait in memory for the database; more of them wait in the journal only. */
  readonly bufferSize: number;
  /** How long a settled request waits for the machine's report before the edge's own count stands. */
  readonly reportWaitMs: number;
  /** The same for a request that an edge left behind when it died. */
  readonly orphanWaitMs: number;
}

export const LEDGER_WAITS = { reportWaitMs: 30_000, orphanWaitMs: 60_000 } as const;

export interface JournaledLedgerDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly journal: Journal;
  readonly store: UsageStore;
  /** This edge's name, the same as `Signer.edge`: hosts count by it. */
  readonly edge: string;
  readonly settings: LedgerSettings;
  readonly onSettled: OnSettled;
  /**
   * Money that `onSettled` did not tell: a request of a former run, or a later report that changed a cost. Budgets add
   * it (it may be negative).
   */
  readonly onAdjusted?: (adjusted: AdjustedSpending) => void;
  /**
   * Whoever settles a request charges its own counts to budgets at once, as on Workers, where nothing waits behind an
   * answer: what a machine's report changes is an adjustment from the first time on.
   */
  readonly ownCountsAreCharged?: boolean;
  /** The rows of these requests are in the database. */
  readonly onRecorded?: (requestIds: readonly string[]) => void;
}

export interface AdjustedSpending {
  readonly account: string;
  readonly project: string;
  readonly keyId: string;
  /** When the request was received, Unix milliseconds. */
  readonly atMs: number;
  readonly nanoUsd: bigint;
}

/** Rows are kept in memory this long after their settlement, for the reports of hosts that are late. */
const KEEP_SETTLED_MS = 600_000;
/** Segments beside the one being written, above which running requests are carried over so that old ones can go. */
const CARRY_ABOVE_SEGMENTS = 4;
/** After this a report is overdue: one that has something to tell comes at once. */
const ASK_AFTER_MS = 2_000;
const MOST_ASKED = 200;
const DIFFERENCE_RANGE_MS = 24 * 3_600_000;
/** So many rows go to the database without waiting for the timer: under load that is every few milliseconds. */
const MOST_ROWS_KEPT = 256;

/**
 * The ledger of one edge. Every call writes a line to the journal and applies it to the book; a timer makes the journal
 * durable and moves rows to the database. While that is away the lines stay in the journal and the write is repeated
 * with back-off. What the end of this process can lose: nothing that was written before the last turn of the event
 * loop. What a power cut can lose: one flush interval.
 */
export class JournaledLedger implements Ledger {
  readonly #deps: JournaledLedgerDeps;
  readonly #book: LedgerBook;
  readonly #writer: UsageWriter;
  /** Requests of a former run, by the time at which they are given up. */
  readonly #orphans = new Map<string, number>();
  /** Requests of a former run that were not final when this one began: budgets were not told of them. */
  readonly #former = new Set<string>();
  #cancelTimer = (): void => {};
  #flushing: Promise<void> | null = null;
  #writing: Promise<void> | null = null;
  #isJournalInDoubt = false;
  #stopped = false;

  constructor(deps: JournaledLedgerDeps) {
    this.#deps = deps;
    this.#book = new LedgerBook(deps.journal.read === undefined ? undefined : deps.settings.bufferSize);
    this.#writer = new UsageWriter({
      clock: deps.clock,
      logger: deps.logger,
      store: {
        async record(batch) {
          await deps.store.record(batch);
          deps.onRecorded?.(batch.usage.map(({ requestId }) => requestId));
        },
      },
      book: this.#book,
      batchSize: deps.settings.batchSize,
      readSpilled: () => this.#readSpilled(),
      refused: (requestId, reason) => this.#write({ kind: "refused", requestId, reason, atMs: deps.clock.nowMs() }),
    });
  }

  /**
   * Replays the journal, writes what is final to the database and starts the flush timer. Call before the first request
   * is let in, and read what was spent (`UsageStore.spent`) after it.
   */
  async start(): Promise<void> {
    const { clock, journal, logger, settings } = this.#deps;
    let unreadable = 0;
    await journal.replay((line, segment) => {
      const entry = journalEntrySchema.safeParse(line);
      if (entry.success) this.#book.apply(entry.data, segment);
      else unreadable += 1;
    });
    if (unreadable > 0) logger.error("the journal has lines that cannot be read", { lines: unreadable });
    await this.forgetAdopted();
    const orphans = this.#book.unsettled();
    for (const requestId of orphans) this.#orphans.set(requestId, clock.nowMs() + settings.orphanWaitMs);
    if (orphans.length > 0) {
      logger.warn("requests of a former run wait for their machines' reports", { requests: orphans.length });
    }
    await this.flush();
    for (const requestId of this.#book.unfinal()) this.#former.add(requestId);
    this.#schedule();
  }

  open(request: OpenedRequest): void {
    if (!this.#deps.journal.hasRoom()) throw new ApiError("usage_journal_full", { retryAfterSeconds: 10 });
    this.#write({ kind: "open", request });
  }

  attemptStarted(attempt: StartedAttempt): void {
    this.#write({ kind: "attempt", attempt });
  }

  settle(settled: SettledRequest): void {
    if (!this.#book.has(settled.requestId) || this.#book.isSettled(settled.requestId)) {
      this.#deps.logger.warn("a settlement of a request that is not open was ignored", {
        request_id: settled.requestId,
      });
      return;
    }
    this.#write({ kind: "settle", settled, atMs: this.#deps.clock.nowMs() });
  }

  shed(request: OpenedRequest, totalMs: number): void {
    if (!this.#book.has(request.requestId)) this.#write({ kind: "open", request });
    this.settle({
      requestId: request.requestId,
      outcome: "shed",
      attempts: [],
      backend: null,
      steeringHash: null,
      queueMs: null,
      ttftMs: null,
      tpotMs: null,
      totalMs,
    });
  }

  acceptReport(
    host: string,
    ended: readonly EndedRequest[],
    counters: readonly HourCounter[],
  ): readonly { request_id: string; attempt: number }[] {
    const { clock, edge, journal, logger } = this.#deps;
    const news: EndedRequest[] = [];
    for (const entry of ended) {
      const kind = this.#book.isNews(host, entry.request_id, entry.attempt);
      if (kind === "news") news.push(entry);
      if (kind === "foreign") {
        logger.warn("a host reported an attempt of another host; ignored", { host, request_id: entry.request_id });
      }
    }
    const grown = counters.filter((counter) => this.#book.isCounterNews(host, edge, counter));
    if (news.length > 0 || grown.length > 0) {
      this.#write({ kind: "report", host, edge, ended: news, counters: grown, atMs: clock.nowMs() });
      this.#settleOrphans();
      // The host forgets what is acknowledged, so it must be out of this process before the answer is.
      journal.writeOut();
    }
    // Lines that the disk refused are only in memory: hosts keep and repeat their reports until it takes them.
    return journal.hasRoom() ? ended.map(({ request_id, attempt }) => ({ request_id, attempt })) : [];
  }

  askedOf(host: string): readonly AskedAttempt[] {
    const overdue = [...this.#book.waitingSince(this.#deps.clock.nowMs() - ASK_AFTER_MS), ...this.#orphans.keys()];
    const asked: AskedAttempt[] = [];
    for (const requestId of overdue) {
      const account = this.#book.account(requestId);
      if (account !== null) asked.push(...unreportedOf(account, host));
      if (asked.length >= MOST_ASKED) break;
    }
    return asked.slice(0, MOST_ASKED);
  }

  /** Makes the journal durable and writes what is final to the database. Never rejects: what fails is tried again. */
  async flush(): Promise<void> {
    this.#flushing ??= this.#flush().finally(() => {
      this.#flushing = null;
    });
    await this.#flushing;
  }

  /**
   * Lets go of requests that another edge has settled while this one was gone: their rows are in the database, and with
   * the machine's own counts. Rejects when the store is away.
   */
  async forgetAdopted(): Promise<void> {
    const open = this.#book.unfinal();
    if (open.length === 0) return;
    const { usageRows } = await this.#deps.store.requests(open);
    for (const { requestId } of usageRows) {
      this.#book.drop(requestId);
      this.#former.delete(requestId);
    }
    this.#deps.onRecorded?.(usageRows.map(({ requestId }) => requestId));
    if (usageRows.length > 0)
      this.#deps.logger.warn("requests that were open here were settled by another edge", {
        requests: usageRows.length,
      });
  }

  /** Whether requests of a former run may still be written. */
  get hasFormer(): boolean {
    return this.#orphans.size + this.#former.size > 0;
  }

  /** Requests whose rows are not in the database yet: what another edge would have to settle if this one died. */
  openAccounts(): readonly RequestAccount[] {
    return this.#book.unfinal().flatMap((requestId) => this.#book.account(requestId) ?? []);
  }

  /** The sums of the proof that differ, over the last day; for the metric. Rejects when the store is away. */
  async difference(): Promise<number> {
    const nowMs = this.#deps.clock.nowMs();
    return ledgerDifference(this.#deps.store, this.#book.rows(), {
      fromMs: nowMs - DIFFERENCE_RANGE_MS,
      toMs: null,
      settledUpToMs: nowMs,
    });
  }

  /** Stops the timer and flushes once more; what the database did not take stays in the journal. */
  async close(): Promise<void> {
    this.#stopped = true;
    this.#cancelTimer();
    await this.flush();
    this.#writer.hurry();
    await this.flush();
    await this.#deps.journal.close();
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#cancelTimer = this.#deps.clock.after(this.#deps.settings.flushIntervalMs, () => {
      void this.flush().then(() => this.#schedule());
    });
  }

  async #flush(): Promise<void> {
    const { clock, logger, settings } = this.#deps;
    const nowMs = clock.nowMs();
    for (const requestId of this.#book.waitingSince(nowMs - settings.reportWaitMs)) {
      this.#write({ kind: "waited", requestId, atMs: nowMs });
    }
    this.#settleOrphans();
    await this.#syncJournal();
    await this.#writing;
    await this.#writer.write();
    this.#book.forget(clock.nowMs() - KEEP_SETTLED_MS);
    try {
      await this.#releaseSegments();
    } catch (thrown) {
      logger.warn("old journal segments could not be deleted", { reason: String(thrown) });
    }
  }

  /**
   * A disk that failed to make lines durable may have lost them and say nothing of it the next time, so they are written
   * again, to another segment, before anything new is let in.
   */
  async #syncJournal(): Promise<void> {
    const { journal, logger } = this.#deps;
    try {
      if (this.#isJournalInDoubt) {
        const { newest } = journal.segments();
        journal.rotate();
        this.#book.carry(newest, (entry) => journal.append(entry));
      }
      await journal.sync();
      if (this.#isJournalInDoubt) logger.info("the usage journal is durable again");
      this.#isJournalInDoubt = false;
    } catch (thrown) {
      if (!this.#isJournalInDoubt)
        logger.error("the usage journal cannot be written; new requests are refused", {}, thrown);
      this.#isJournalInDoubt = true;
    }
  }

  /** Brings back what did not fit in memory, one segment at a time; false when there is nothing to bring. */
  async #readSpilled(): Promise<boolean> {
    const { journal, logger } = this.#deps;
    const segment = this.#book.spilledSegment;
    if (segment === null || journal.read === undefined) return false;
    if (segment === journal.segments().newest) journal.rotate();
    if (segment === journal.segments().newest) return false;
    try {
      await journal.read(segment, (line) => {
        const entry = journalEntrySchema.safeParse(line);
        if (entry.success) this.#book.reapply(entry.data, segment);
      });
    } catch (thrown) {
      logger.error("a journal segment could not be read again", { segment }, thrown);
      return false;
    }
    this.#book.reread(segment);
    return true;
  }

  async #releaseSegments(): Promise<void> {
    const { journal } = this.#deps;
    let { oldest, newest } = journal.segments();
    if (this.#book.oldestNeededSegment() === null) {
      journal.rotate();
      newest = journal.segments().newest;
    } else if (
      newest - oldest > CARRY_ABOVE_SEGMENTS &&
      !this.#writer.isBackingOff &&
      this.#book.spilledSegment === null
    ) {
      this.#book.carry(newest, (entry) => journal.append(entry));
      await journal.sync();
    }
    const needed = this.#book.oldestNeededSegment() ?? newest;
    if (needed > oldest) await journal.release(needed);
  }

  /** Ends requests that a former run left open, as soon as their machine has reported, or at last without. */
  #settleOrphans(): void {
    const nowMs = this.#deps.clock.nowMs();
    for (const [requestId, giveUpAtMs] of this.#orphans) {
      const account = this.#book.account(requestId);
      if (account === null || account.settled !== null) {
        this.#orphans.delete(requestId);
        continue;
      }
      if (awaitsLastReport(account) && nowMs < giveUpAtMs) continue;
      this.#orphans.delete(requestId);
      this.#write({ kind: "settle", atMs: nowMs, settled: orphanSettlement(account) });
    }
  }

  #write(entry: JournalEntry): void {
    const settlements = this.#book.apply(entry, this.#deps.journal.append(entry));
    for (const settlement of settlements) this.#tell(settlement);
    this.#writeMany();
  }

  /** Under load rows go to the database as soon as there are enough of them for a transaction. */
  #writeMany(): void {
    const { waitingRows } = this.#book;
    const least = Math.min(MOST_ROWS_KEPT, this.#deps.settings.batchSize);
    if (waitingRows < least || this.#flushing !== null || this.#writing !== null || this.#writer.isBackingOff) return;
    this.#writing = this.#writer.write(least).finally(() => {
      this.#writing = null;
    });
  }

  #tell({ opened, counts, costNanoUsd, formerCostNanoUsd }: Settlement): void {
    if (formerCostNanoUsd !== null) {
      this.#adjusted(opened, costNanoUsd - formerCostNanoUsd);
      return;
    }
    const { requestId, account } = opened;
    const isFormer = this.#former.delete(requestId);
    if (this.#deps.ownCountsAreCharged === true) this.#adjusted(opened, costNanoUsd - this.#chargedNanoUsd(requestId));
    else if (isFormer) this.#adjusted(opened, costNanoUsd);
    const { promptTokens, cachedTokens, completionTokens } = counts;
    this.#deps.onSettled({
      requestId,
      account,
      counts: { promptTokens, cachedTokens, completionTokens },
      costNanoUsd,
    });
  }

  #chargedNanoUsd(requestId: string): bigint {
    const account = this.#book.account(requestId);
    return account === null ? 0n : ownCostNanoUsd(account);
  }

  #adjusted({ account, project, keyId, atMs }: OpenedRequest, nanoUsd: bigint): void {
    if (nanoUsd === 0n) return;
    this.#deps.onAdjusted?.({ account, project, keyId, atMs, nanoUsd });
  }
}
