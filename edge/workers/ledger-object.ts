import { DurableObject } from "cloudflare:workers";
import { ApiError } from "../../shared/errors/api-error.ts";
import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";
import type { SpentByKey } from "../ports/usage-store.ts";
import type { ToldPlace } from "../limits/told-place.ts";
import { scopeIds, spentRequest } from "../limits/scopes.ts";
import type { OpenedRequest } from "../ports/ledger.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import type { LibsqlStore } from "../store/store.libsql.ts";
import { JournaledLedger } from "../usage/journaled-ledger.ts";
import type { LedgerCall } from "../web/ledger.remote.ts";
import { ledgerSettings, priceList } from "../web/settings-of-config.ts";
import { workersClock } from "./clock.workers.ts";
import { settingsOf, type WorkerEnv } from "./env.ts";
import { DurableObjectJournal } from "./journal.durable-object.ts";
import { workersLogger } from "./logger.workers.ts";
import { storeOf } from "./store.workers.ts";

/** One ledger for this Worker. */
export const LEDGER_OBJECT_NAME = "ledger";

/** Of sums that reports keep changing while they are read. */
const MOST_READINGS = 5;

/**
 * The same ledger as on Node, its journal in this object's storage. A row goes to the database with the call that
 * settles it; what the database does not take is tried again by the alarm, also after the object was evicted.
 */
export class LedgerObject extends DurableObject<WorkerEnv> {
  readonly #ledger: JournaledLedger;
  readonly #journal: DurableObjectJournal;
  readonly #retryMs: number;
  readonly #store: LibsqlStore;
  readonly #logger: Logger;
  #priceVersion: number | null = null;
  #told: ToldPlace = { run: Date.now(), count: 0 };
  #asked: Promise<number> | null = null;

  constructor(state: DurableObjectState, env: WorkerEnv) {
    super(state, env);
    const settings = settingsOf(env);
    this.#journal = new DurableObjectJournal(state.storage);
    this.#retryMs = Math.max(1_000, settings.config.auth.flush_interval);
    this.#store = storeOf(settings);
    this.#logger = workersLogger(settings.config);
    this.#ledger = new JournaledLedger({
      clock: workersClock,
      logger: this.#logger,
      journal: this.#journal,
      store: this.#store,
      edge: settings.config.name,
      settings: ledgerSettings(settings.config),
      // Reservations end in the Worker with its own counts; what a machine's report changes of them is told here.
      onSettled: () => undefined,
      ownCountsAreCharged: true,
      onAdjusted: ({ atMs, nanoUsd, ...spender }) => {
        const spent = { scopes: scopeIds(spender), atMs, nanoUsd: nanoUsd.toString() };
        this.#told = { ...this.#told, count: this.#told.count + 1 };
        state.waitUntil(env.LIMITS.getByName(spender.account).addSpent(spender.account, [spent], this.#told));
      },
    });
    void state.blockConcurrencyWhile(() => this.#ledger.start());
  }

  /** What a request must know before it begins. */
  async begin(): Promise<{ readonly hasRoom: boolean; readonly priceVersion: number }> {
    // Requests that come together ask once.
    if (this.#priceVersion === null) {
      this.#asked ??= this.#askPriceVersion().finally(() => (this.#asked = null));
      this.#priceVersion = await this.#asked;
    }
    return { hasRoom: this.#journal.hasRoom(), priceVersion: this.#priceVersion };
  }

  /** Idempotent by request id, as the ledger is. */
  async apply(calls: readonly LedgerCall[]): Promise<void> {
    for (const call of calls) {
      switch (call.kind) {
        case "open":
          this.#open(call.request);
          break;
        case "attempt":
          this.#ledger.attemptStarted(call.attempt);
          break;
        case "settle":
          this.#ledger.settle(call.settled);
          break;
        case "shed":
          this.#ledger.shed(call.request, call.totalMs);
          break;
        default:
          call satisfies never;
      }
    }
    await this.#flushLater();
  }

  async acceptReport(
    host: string,
    ended: readonly EndedRequest[],
    counters: readonly HourCounter[],
  ): Promise<readonly { request_id: string; attempt: number }[]> {
    const acknowledged = this.#ledger.acceptReport(host, ended, counters);
    if (ended.length > 0) await this.#flushLater();
    return acknowledged;
  }

  askedOf(host: string): readonly AskedAttempt[] {
    return this.#ledger.askedOf(host);
  }

  /**
   * What the keys of an account have cost: the database's rows, once all that is final here is among them, and how far
   * budgets were told by then. Rejects when the database is away.
   */
  async spentBy(account: string): Promise<{ readonly spent: readonly SpentByKey[]; readonly told: ToldPlace }> {
    for (let round = 1; ; round++) {
      const told = this.#told;
      await this.#ledger.flush();
      const spent = await this.#store.spent(spentRequest(workersClock.nowMs(), account));
      if (told.count === this.#told.count || round === MOST_READINGS) return { spent, told };
    }
  }

  override async alarm(): Promise<void> {
    await this.#ledger.flush();
    await this.#store
      .forgetAnswers()
      .catch((thrown: unknown) =>
        this.#logger.warn("old first answers could not be deleted", { reason: String(thrown) }),
      );
    // Lines are left: rows that wait for a report, or a database that is away.
    if (this.#journal.lines() > 0) await this.#flushLater();
  }

  /** The version of the configured price list, known to the database. */
  async #askPriceVersion(): Promise<number> {
    const settings = settingsOf(this.env);
    const store = storeOf(settings);
    try {
      return await store.priceVersion(priceList(settings.config), workersClock.nowMs());
    } finally {
      await store.close();
    }
  }

  /** The request was let in by the Worker already, so a full journal cannot refuse it here. */
  #open(request: OpenedRequest): void {
    try {
      this.#ledger.open(request);
    } catch (thrown) {
      if (!(thrown instanceof ApiError)) throw thrown;
    }
  }

  async #flushLater(): Promise<void> {
    if ((await this.ctx.storage.getAlarm()) === null) await this.ctx.storage.setAlarm(Date.now() + this.#retryMs);
  }
}
