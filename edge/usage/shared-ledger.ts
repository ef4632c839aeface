import type { Logger } from "../../shared/logging/logger.ts";
import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { EdgeMember } from "../ports/edge-store.ts";
import type { Ledger } from "../ports/ledger.ts";
import type { OpenRequest, OpenRequestStore } from "../ports/open-request-store.ts";
import { LEDGER_WAITS } from "./journaled-ledger.ts";
import type { RequestAccount } from "./request-account.ts";

type Acknowledged = ReturnType<Ledger["acceptReport"]>;

export interface SharedLedgerDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly store: OpenRequestStore;
  readonly ledger: Pick<Ledger, "acceptReport" | "askedOf"> & { openAccounts(): readonly RequestAccount[] };
  /** This edge's name. */
  readonly edge: string;
  /** The other edges of the database, as last heard. */
  readonly others: () => readonly EdgeMember[];
  /** What the limits hold for a request. */
  readonly reservedNanoUsd: (requestId: string) => bigint;
}

const NOTE_EVERY_MS = 1_000;
const ABANDONED_EVERY_MS = 5_000;
/** What a dead edge alone can place is offered by hosts with every report; the database is asked this often. */
const ASK_AGAIN_MS = 15_000;

/**
 * What edges of one database do for each other's ledgers: each notes its open requests while others are there, and
 * settles those of a dead one by what machines report. Alone it does nothing.
 */
export class SharedLedger {
  readonly #deps: SharedLedgerDeps;
  /** Noted in the database, with the number of attempts that were told. */
  readonly #noted = new Map<string, number>();
  readonly #askedAtMs = new Map<string, number>();
  #cancelTimer = (): void => undefined;
  #turn: Promise<void> | null = null;
  #abandonedAtMs = Number.NEGATIVE_INFINITY;
  #stopped = false;

  constructor(deps: SharedLedgerDeps) {
    this.#deps = deps;
  }

  /** Begins; what a former process of this edge noted is known from here on. Rejects when the store is away. */
  async start(): Promise<void> {
    for (const requestId of await this.#deps.store.openRequestIds(this.#deps.edge)) this.#noted.set(requestId, -1);
    await this.note();
    this.#schedule();
  }

  /** Edges that have died and whose requests this one settles. */
  get dead(): readonly string[] {
    return this.#deps.others().flatMap(({ name, leaseLeftMs }) => (leaseLeftMs <= 0 ? [name] : []));
  }

  /** A host's report: what is this edge's own goes to its ledger, what is a dead edge's into the database. */
  async acceptReport(
    host: string,
    ended: readonly EndedRequest[],
    counters: readonly HourCounter[],
  ): Promise<Acknowledged> {
    const others = new Set(this.#deps.others().map(({ name }) => name));
    const mine = this.#deps.ledger.acceptReport(
      host,
      ended.filter(({ edge }) => !others.has(edge)),
      counters.filter(({ edge }) => edge === undefined || !others.has(edge)),
    );
    return [...mine, ...(await this.#adopt(host, ended, counters))];
  }

  askedOf(host: string): ReturnType<Ledger["askedOf"]> {
    return this.#deps.ledger.askedOf(host);
  }

  /** Brings what the database knows of open requests up to date. Never rejects: the next turn tries again. */
  note(): Promise<void> {
    this.#turn ??= this.#note().finally(() => {
      this.#turn = null;
    });
    return this.#turn;
  }

  /** After the ledger's end: whatever is still open waits for machines' reports. */
  async close(): Promise<void> {
    this.#stopped = true;
    this.#cancelTimer();
    await this.#turn;
    await this.#note();
  }

  async #adopt(host: string, ended: readonly EndedRequest[], counters: readonly HourCounter[]): Promise<Acknowledged> {
    const { clock, logger, store } = this.#deps;
    const dead = new Set(this.dead);
    const nowMs = clock.monotonicMs();
    for (const [key, atMs] of this.#askedAtMs) if (nowMs - atMs >= ASK_AGAIN_MS) this.#askedAtMs.delete(key);
    const theirs = ended.filter((entry) => dead.has(entry.edge) && !this.#askedAtMs.has(keyOf(entry)));
    const counted = counters.flatMap((counter) =>
      counter.edge !== undefined && dead.has(counter.edge) ? [{ ...counter, edge: counter.edge }] : [],
    );
    if (theirs.length + counted.length === 0) return [];
    try {
      const acknowledged = await store.adopt({ host, ended: theirs, counters: counted, atMs: clock.nowMs() });
      for (const entry of theirs) this.#askedAtMs.set(keyOf(entry), nowMs);
      if (acknowledged.length > 0)
        logger.info("requests of an edge that died were settled", { host, requests: acknowledged.length });
      return acknowledged;
    } catch (thrown) {
      logger.warn("requests of an edge that died wait: the database is away", reasonOf(thrown));
      return [];
    }
  }

  async #note(): Promise<void> {
    const { clock, edge, logger, store } = this.#deps;
    try {
      const { open, closed } = this.#changes();
      if (open.length + closed.length > 0) await store.noteOpenRequests(edge, open, closed);
      for (const { opened, attempts } of open) this.#noted.set(opened.requestId, attempts.length);
      for (const requestId of closed) this.#noted.delete(requestId);
      const nowMs = clock.monotonicMs();
      if (this.#stopped || this.dead.length === 0 || nowMs - this.#abandonedAtMs < ABANDONED_EVERY_MS) return;
      this.#abandonedAtMs = nowMs;
      const settled = await store.settleAbandoned(LEDGER_WAITS.orphanWaitMs, clock.nowMs());
      if (settled > 0)
        logger.warn("requests of an edge that died ended without a machine's word", { requests: settled });
    } catch (thrown) {
      logger.debug("open requests could not be noted: the database is away", reasonOf(thrown));
    }
  }

  #changes(): { readonly open: readonly OpenRequest[]; readonly closed: readonly string[] } {
    const accounts = this.#deps.others().length > 0 ? this.#deps.ledger.openAccounts() : [];
    const present = new Set(accounts.map(({ opened }) => opened.requestId));
    return {
      open: accounts
        .filter(({ opened, started }) => this.#noted.get(opened.requestId) !== started.size)
        .map(({ opened, started }) => ({
          opened,
          attempts: [...started.values()],
          reservedNanoUsd: this.#deps.reservedNanoUsd(opened.requestId).toString(),
        })),
      closed: [...this.#noted.keys()].filter((requestId) => !present.has(requestId)),
    };
  }

  #schedule(): void {
    if (this.#stopped) return;
    this.#cancelTimer = this.#deps.clock.after(NOTE_EVERY_MS, () => void this.note().then(() => this.#schedule()));
  }
}

const keyOf = ({ request_id, attempt }: EndedRequest): string => `${request_id}.${attempt}`;
const reasonOf = (thrown: unknown): { reason: string } => ({
  reason: thrown instanceof Error ? thrown.message : String(thrown),
});
