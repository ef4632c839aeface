import type { HourCounter } from "../../shared/protocol/report.ts";
import { TransientMap } from "../../shared/transient-map.ts";
import type { OpenedRequest, TokenCounts } from "../ports/ledger.ts";
import type { AttemptRow, HostCounterRow, LateReport, UsageBatch, UsageRow } from "../ports/usage-store.ts";
import type { JournalEntry } from "./journal-entry.ts";
import { attemptRowsOf, awaitsHost, reportedRow, usageRowOf, type RequestAccount } from "./request-account.ts";

/** A request whose final counts became known, or changed by a later report. */
export interface Settlement {
  readonly opened: OpenedRequest;
  readonly counts: TokenCounts;
  readonly costNanoUsd: bigint;
  /** What was said before; null the first time. */
  readonly formerCostNanoUsd: bigint | null;
}

export interface TakenBatch {
  readonly batch: UsageBatch;
  readonly requestIds: readonly string[];
  /** Call when the batch is in the database. */
  confirm(): void;
}

interface Held {
  readonly account: RequestAccount;
  /** The oldest segment that still has a line of it that the database may not have. */
  segment: number;
  /** Grows with every change; equal to `recorded` when the database has it. */
  version: number;
  recorded: number;
  /** What was said of it last; null until it is final. */
  costNanoUsd: bigint | null;
  /** Why the database refused its rows when they were last tried; null where it did not. */
  refusal: { readonly reason: string; readonly atMs: number } | null;
}

interface Pinned<Row> {
  readonly row: Row;
  readonly segment: number;
}

/**
 * The ledger's state as the journal's lines make it: no clock, no I/O. The edge applies its own lines to it; a command
 * applies the lines it reads, and both come to the same rows.
 */
export class LedgerBook {
  readonly #held = new TransientMap<string, Held>();
  readonly #dirty = new Set<string>();
  /** Of those that the database refuses, which are not taken. */
  readonly #aside = new Set<string>();
  readonly #waiting = new Map<string, number>();
  readonly #counters = new Map<string, HostCounterRow>();
  readonly #dirtyCounters = new Map<string, Pinned<HostCounterRow>>();
  readonly #late = new Map<string, Pinned<LateReport>>();
  readonly #maxWaiting: number;
  /** The oldest and the newest segment with lines that are kept in the journal only. */
  #spilled: { from: number; to: number } | null = null;
  #isRereading = false;

  /**
   * `maxWaiting` bounds the final requests that wait in memory for the database. More of them stay in the journal only,
   * to be read again segment by segment.
   */
  constructor(maxWaiting = Number.POSITIVE_INFINITY) {
    this.#maxWaiting = maxWaiting;
  }

  apply(entry: JournalEntry, segment: number): readonly Settlement[] {
    switch (entry.kind) {
      case "open":
        this.#open(entry.request, segment);
        return [];
      case "attempt": {
        const held = this.#held.get(entry.attempt.requestId);
        if (held !== undefined && !held.account.started.has(entry.attempt.attempt)) {
          held.account.started.set(entry.attempt.attempt, entry.attempt);
        }
        return [];
      }
      case "settle":
        return this.#change(entry.settled.requestId, segment, (account) => {
          if (account.settled !== null) return false;
          account.settled = { request: entry.settled, atMs: entry.atMs };
          return true;
        });
      case "waited":
        return this.#change(entry.requestId, segment, (account) => {
          if (account.waitedAtMs !== null) return false;
          account.waitedAtMs = entry.atMs;
          return true;
        });
      case "refused": {
        const held = this.#held.get(entry.requestId);
        if (held !== undefined) held.refusal = { reason: entry.reason, atMs: entry.atMs };
        return [];
      }
      case "report":
        return this.#report(entry, segment);
      default:
        return entry satisfies never;
    }
  }

  /** Whether a host's line about this attempt would be news. A host says nothing about another host's attempts. */
  isNews(host: string, requestId: string, attempt: number): "news" | "known" | "foreign" {
    const held = this.#held.get(requestId);
    if (held === undefined) return this.#late.has(lateKey(requestId, attempt)) ? "known" : "news";
    const started = held.account.started.get(attempt);
    if (started !== undefined && started.backend !== host) return "foreign";
    return held.account.reports.has(attempt) ? "known" : "news";
  }

  isCounterNews(host: string, edge: string, counter: HourCounter): boolean {
    const known = this.#counters.get(counterKey(host, counter.edge ?? edge, counter));
    return known === undefined || counter.requests > known.requests;
  }

  has(requestId: string): boolean {
    return this.#held.has(requestId);
  }

  isSettled(requestId: string): boolean {
    return this.#held.get(requestId)?.account.settled !== null;
  }

  account(requestId: string): RequestAccount | null {
    return this.#held.get(requestId)?.account ?? null;
  }

  /** Requests that were opened and have not been settled. */
  unsettled(): string[] {
    return [...this.#held.values()]
      .filter((held) => held.account.settled === null)
      .map((held) => held.account.opened.requestId);
  }

  /** Requests whose counts are not known yet: unsettled ones and those that wait for a report. */
  unfinal(): string[] {
    return [...this.#held].filter(([, held]) => held.costNanoUsd === null).map(([requestId]) => requestId);
  }

  /** Forgets a request that is not final: its row was written by another edge. */
  drop(requestId: string): void {
    this.#held.delete(requestId);
    this.#dirty.delete(requestId);
    this.#aside.delete(requestId);
    this.#waiting.delete(requestId);
  }

  /** Settled requests that wait for a machine's report since `atMs` or longer. */
  waitingSince(atMs: number): string[] {
    return [...this.#waiting].filter(([, settledAtMs]) => settledAtMs <= atMs).map(([requestId]) => requestId);
  }

  /** Requests whose rows wait to be taken. */
  get waitingRows(): number {
    return this.#dirty.size;
  }

  /** The next rows to write, at most `limit` requests; null when the database has everything. */
  take(limit: number): TakenBatch | null {
    const taken: { held: Held; version: number }[] = [];
    const usage: UsageRow[] = [];
    const attempts: AttemptRow[] = [];
    for (const requestId of this.#dirty) {
      if (taken.length === limit) break;
      const held = this.#held.get(requestId);
      if (held === undefined) continue;
      taken.push({ held, version: held.version });
      const row = usageRowOf(held.account);
      if (row !== null) usage.push(row);
      attempts.push(...attemptRowsOf(held.account, row !== null));
    }
    // Counters go last, so that the database never holds a counter without the attempts that it counts.
    const isLast = taken.length === this.#dirty.size;
    const counters = isLast ? [...this.#dirtyCounters] : [];
    const late = isLast ? [...this.#late] : [];
    if (taken.length + counters.length + late.length === 0) return null;
    return {
      batch: {
        usage,
        attempts,
        counters: counters.map(([, { row }]) => row),
        lateReports: late.map(([, { row }]) => row),
      },
      requestIds: taken.map(({ held }) => held.account.opened.requestId),
      confirm: () => {
        for (const { held, version } of taken) {
          held.recorded = version;
          held.refusal = null;
          if (held.version !== version) continue;
          const { requestId } = held.account.opened;
          this.#dirty.delete(requestId);
          // At once, while it is young: what waits for the next flush has moved to where collecting is dear. Not while
          // segments are to be read again, since those would bring it back.
          const isDone = held.costNanoUsd !== null && !awaitsHost(held.account);
          if (isDone && this.#spilled === null) this.#held.delete(requestId);
        }
        for (const [key, pinned] of counters) {
          if (this.#dirtyCounters.get(key) === pinned) this.#dirtyCounters.delete(key);
        }
        for (const [key, pinned] of late) {
          if (this.#late.get(key) === pinned) this.#late.delete(key);
        }
      },
    };
  }

  /** Takes it no more, until it is brought back or changes. */
  setAside(requestId: string): void {
    if (this.#dirty.delete(requestId)) this.#aside.add(requestId);
  }

  /** One that was set aside, or all of them. */
  bringBack(requestId?: string): void {
    for (const known of requestId === undefined ? [...this.#aside] : [requestId]) {
      if (this.#aside.delete(known)) this.#dirty.add(known);
    }
  }

  /** Requests whose rows the database refused, as far as the journal says. */
  refused(): readonly { readonly requestId: string; readonly reason: string }[] {
    return [...this.#held].flatMap(([requestId, { refusal }]) =>
      refusal === null ? [] : [{ requestId, reason: refusal.reason }],
    );
  }

  /** Forgets requests that the database has, once every host has reported or they were settled before `settledAtMs`. */
  forget(settledAtMs: number): void {
    for (const [requestId, held] of this.#held) {
      if (this.#isNeeded(held)) continue;
      const { settled } = held.account;
      if (settled !== null && (settled.atMs <= settledAtMs || !awaitsHost(held.account))) this.#held.delete(requestId);
    }
  }

  /** The segment that must be read again next, since some of its lines were not kept in memory; null for none. */
  get spilledSegment(): number | null {
    return this.#spilled?.from ?? null;
  }

  /** Applies a line that was applied before, without spilling it again: one segment at a time fits in memory. */
  reapply(entry: JournalEntry, segment: number): void {
    this.#isRereading = true;
    try {
      this.apply(entry, segment);
    } finally {
      this.#isRereading = false;
    }
  }

  /** This segment was read again; nothing is written to it any more. */
  reread(segment: number): void {
    if (this.#spilled === null || this.#spilled.from > segment) return;
    this.#spilled = this.#spilled.to > segment ? { ...this.#spilled, from: segment + 1 } : null;
  }

  /** The oldest segment with a line that the database does not have; null when there is none. */
  oldestNeededSegment(): number | null {
    let oldest: number | null = null;
    const see = (segment: number): void => {
      if (oldest === null || segment < oldest) oldest = segment;
    };
    if (this.#spilled !== null) see(this.#spilled.from);
    for (const held of this.#held.values()) if (this.#isNeeded(held)) see(held.segment);
    for (const pinned of this.#dirtyCounters.values()) see(pinned.segment);
    for (const pinned of this.#late.values()) see(pinned.segment);
    return oldest;
  }

  /**
   * Writes the lines of every request that still needs a segment up to `upTo` again with `append`, which answers the
   * segment they now stand in, so that the old segments may go although a long request runs.
   */
  carry(upTo: number, append: (entry: JournalEntry) => number): void {
    for (const held of this.#held.values()) {
      if (!this.#isNeeded(held) || held.segment > upTo) continue;
      held.segment = Math.min(...entriesOf(held.account, held.refusal).map(append));
    }
  }

  /** Everything it holds, as rows. */
  rows(): UsageBatch {
    const accounts = [...this.#held.values()].map((held) => held.account);
    return {
      usage: accounts.map(usageRowOf).filter((row) => row !== null),
      attempts: accounts.flatMap((account) => attemptRowsOf(account)),
      counters: [...this.#counters.values()],
      lateReports: [...this.#late.values()].map((pinned) => pinned.row),
    };
  }

  #isNeeded(held: Held): boolean {
    return held.recorded < held.version || held.costNanoUsd === null;
  }

  #spill(from: number, to: number): void {
    const former = this.#spilled ?? { from, to };
    this.#spilled = { from: Math.min(former.from, from), to: Math.max(former.to, to) };
  }

  #open(opened: OpenedRequest, segment: number): void {
    if (this.#held.has(opened.requestId)) return;
    const account = { opened, started: new Map(), reports: new Map(), settled: null, waitedAtMs: null };
    this.#held.set(opened.requestId, { account, segment, version: 0, recorded: 0, costNanoUsd: null, refusal: null });
  }

  #report(entry: Extract<JournalEntry, { kind: "report" }>, segment: number): readonly Settlement[] {
    const settlements: Settlement[] = [];
    for (const ended of entry.ended) {
      const report = { host: entry.host, ended, atMs: entry.atMs };
      if (!this.#held.has(ended.request_id)) {
        if (this.#spilled !== null && !this.#isRereading) {
          // It may be one of those that were spilled: they are told apart when both are read again.
          this.#spill(segment, segment);
          continue;
        }
        const row = { attempt: reportedRow(report, null), reportedAtMs: entry.atMs };
        this.#late.set(lateKey(ended.request_id, ended.attempt), { row, segment });
        continue;
      }
      if (this.isNews(entry.host, ended.request_id, ended.attempt) !== "news") continue;
      settlements.push(
        ...this.#change(ended.request_id, segment, (account) => {
          account.reports.set(ended.attempt, report);
          return true;
        }),
      );
    }
    for (const counter of entry.counters) {
      if (!this.isCounterNews(entry.host, entry.edge, counter)) continue;
      const edge = counter.edge ?? entry.edge;
      const key = counterKey(entry.host, edge, counter);
      const row = {
        host: entry.host,
        edge,
        epoch: counter.epoch,
        hourMs: counter.hour,
        requests: counter.requests,
        computedPrompt: counter.computed_prompt,
        cachedPrompt: counter.cached_prompt,
        computedCompletion: counter.computed_completion,
      };
      this.#counters.set(key, row);
      this.#dirtyCounters.set(key, { row, segment });
    }
    return settlements;
  }

  #change(requestId: string, segment: number, change: (account: RequestAccount) => boolean): readonly Settlement[] {
    const held = this.#held.get(requestId);
    if (held === undefined || !change(held.account)) return [];
    if (!this.#isNeeded(held)) held.segment = segment;
    held.version += 1;
    const { account } = held;
    const row = usageRowOf(account);
    if (row !== null || account.reports.size > 0) {
      this.#aside.delete(requestId);
      this.#dirty.add(requestId);
    }
    if (row === null) {
      if (account.settled !== null) this.#waiting.set(requestId, account.settled.atMs);
      return [];
    }
    this.#waiting.delete(requestId);
    if (this.#dirty.size > this.#maxWaiting && !this.#isRereading) {
      this.#dirty.delete(requestId);
      this.#held.delete(requestId);
      this.#spill(held.segment, segment);
    }
    const formerCostNanoUsd = held.costNanoUsd;
    held.costNanoUsd = BigInt(row.costNanoUsd);
    if (formerCostNanoUsd === held.costNanoUsd) return [];
    return [{ opened: account.opened, counts: row, costNanoUsd: held.costNanoUsd, formerCostNanoUsd }];
  }
}

function entriesOf(account: RequestAccount, refusal: Held["refusal"]): JournalEntry[] {
  const entries: JournalEntry[] = [{ kind: "open", request: account.opened }];
  for (const attempt of account.started.values()) entries.push({ kind: "attempt", attempt });
  for (const { host, ended, atMs } of account.reports.values()) {
    entries.push({ kind: "report", host, edge: ended.edge, ended: [ended], counters: [], atMs });
  }
  if (account.settled !== null) {
    entries.push({ kind: "settle", settled: account.settled.request, atMs: account.settled.atMs });
  }
  if (account.waitedAtMs !== null) {
    entries.push({ kind: "waited", requestId: account.opened.requestId, atMs: account.waitedAtMs });
  }
  if (refusal !== null) entries.push({ kind: "refused", requestId: account.opened.requestId, ...refusal });
  return entries;
}

const lateKey = (requestId: string, attempt: number): string => `${requestId}.${attempt}`;
const counterKey = (host: string, edge: string, counter: HourCounter): string =>
  `${host}/${edge}/${counter.epoch}/${counter.hour}`;
