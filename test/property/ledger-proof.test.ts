import { createClient } from "@libsql/client";
import { array, assert, asyncProperty, boolean, constant, nat, oneof, record } from "fast-check";
import { expect, it } from "vitest";
import { readMigrations } from "../../edge/node/migration-files.ts";
import { migrate } from "../../edge/store/migrations.ts";
import { LibsqlStore } from "../../edge/store/store.libsql.ts";
import { journalEntrySchema } from "../../edge/usage/journal-entry.ts";
import { JournaledLedger, LEDGER_WAITS } from "../../edge/usage/journaled-ledger.ts";
import { LedgerBook } from "../../edge/usage/ledger-book.ts";
import { exportedRows } from "../../edge/usage/export.ts";
import { addExported, differencesOf, exportDifferences, proofSides, requestIdsOf } from "../../edge/usage/proof.ts";
import { nodeClock } from "../../edge/node/clock.node.ts";
import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";
import { KeptJournal } from "../support/kept-journal.ts";
import { ManualClock } from "../support/manual-clock.ts";
import { keptLogger } from "../support/silent-logger.ts";
import { endedAttempt, endedRequest, opened, settledRequest, START_MS } from "../support/usage-rows.ts";

const HOUR_MS = 3_600_000;

/** A host that computes attempts, repeats what ended until it is acknowledged, and counts. */
class ScriptedHost {
  readonly running = new Map<string, { requestId: string; attempt: number }>();
  unacknowledged: EndedRequest[] = [];
  readonly counters = new Map<number, HourCounter>();

  start(requestId: string, attempt: number): void {
    this.running.set(`${requestId}.${attempt}`, { requestId, attempt });
  }

  end(key: string, atMs: number, tokens: number, outcome: EndedRequest["outcome"]): void {
    const run = this.running.get(key);
    if (run === undefined) return;
    this.running.delete(key);
    const ended = endedRequest(run.requestId, {
      attempt: run.attempt,
      ended_at: atMs,
      computed_prompt: 3 + (tokens % 5),
      cached_prompt: tokens % 3,
      computed_completion: tokens,
      outcome,
    });
    this.unacknowledged.push(ended);
    const hour = Math.floor(atMs / HOUR_MS) * HOUR_MS;
    const former = this.counters.get(hour);
    this.counters.set(hour, {
      epoch: ended.epoch,
      hour,
      requests: (former?.requests ?? 0) + 1,
      computed_prompt: (former?.computed_prompt ?? 0) + ended.computed_prompt,
      cached_prompt: (former?.cached_prompt ?? 0) + ended.cached_prompt,
      computed_completion: (former?.computed_completion ?? 0) + ended.computed_completion,
    });
  }
}

async function emptyStore(): Promise<LibsqlStore> {
  const client = createClient({ url: ":memory:", intMode: "bigint" });
  await migrate(client, await readMigrations(), { nowMs: 0, backUp: () => Promise.resolve() });
  return new LibsqlStore({ clock: nodeClock, isFile: true, connect: () => Promise.resolve(client) });
}

/** An edge with one host behind it, driven one event at a time. */
class World {
  readonly clock = new ManualClock(START_MS + HOUR_MS - 40_000);
  readonly host = new ScriptedHost();
  readonly store: LibsqlStore;
  journal = new KeptJournal();
  ledger: JournaledLedger;
  isStoreAway = false;
  /** Requests that the living edge has open, with the attempts it started. */
  readonly open = new Map<string, number>();
  #last = 0;

  constructor(store: LibsqlStore) {
    this.store = store;
    this.ledger = this.#newLedger();
  }

  #newLedger(): JournaledLedger {
    const { store } = this;
    return new JournaledLedger({
      clock: this.clock,
      logger: keptLogger().logger,
      journal: this.journal,
      store: {
        record: (batch) => (this.isStoreAway ? Promise.reject(new Error("away")) : store.record(batch)),
        usagePage: (request) => store.usagePage(request),
        requests: (ids) => store.requests(ids),
        proofSnapshot: (request) => store.proofSnapshot(request),
        spent: (request) => store.spent(request),
        priceVersion: (prices, atMs) => store.priceVersion(prices, atMs),
      },
      edge: "edge",
      settings: { flushIntervalMs: 1_000_000_000, batchSize: 3, bufferSize: 2, ...LEDGER_WAITS },
      onSettled: () => undefined,
    });
  }

  arrive(): void {
    const requestId = `req_${String(++this.#last).padStart(4, "0")}`;
    this.ledger.open(opened(requestId, { atMs: this.clock.nowMs() }));
    this.open.set(requestId, 0);
  }

  attempt(pick: number): void {
    const requestId = picked([...this.open.keys()], pick);
    if (requestId === undefined) return;
    const attempt = (this.open.get(requestId) ?? 0) + 1;
    this.open.set(requestId, attempt);
    this.ledger.attemptStarted({ requestId, attempt, backend: "gpu-1", replica: "r1", epoch: 7 });
    this.host.start(requestId, attempt);
  }

  settle(pick: number, tokens: number): void {
    const requestId = picked([...this.open.keys()], pick);
    if (requestId === undefined) return;
    const attempts = this.open.get(requestId) ?? 0;
    this.open.delete(requestId);
    const answered = tokens % 4 !== 0;
    this.ledger.settle(
      settledRequest(requestId, {
        outcome: answered ? "completed" : "failed",
        attempts: Array.from({ length: attempts }, (_, at) =>
          endedAttempt(requestId, {
            attempt: at + 1,
            exactness: "counted",
            counts: { promptTokens: 4, cachedTokens: 0, completionTokens: tokens },
            unbilledReason: answered && at + 1 === attempts ? null : "failed_before_first_token",
            awaitReport: tokens % 3 === 0,
          }),
        ),
      }),
    );
  }

  end(pick: number, tokens: number): void {
    const key = picked([...this.host.running.keys()], pick);
    if (key !== undefined) this.host.end(key, this.clock.nowMs(), tokens, tokens % 2 === 0 ? "completed" : "cancelled");
  }

  report(isAnswerLost: boolean): void {
    const acknowledged = this.ledger.acceptReport("gpu-1", this.host.unacknowledged, [...this.host.counters.values()]);
    if (isAnswerLost) return;
    const known = new Set(acknowledged.map(({ request_id, attempt }) => `${request_id}.${attempt}`));
    this.host.unacknowledged = this.host.unacknowledged.filter(
      ({ request_id, attempt }) => !known.has(`${request_id}.${attempt}`),
    );
  }

  async flush(): Promise<void> {
    this.clock.advance(2_000);
    await this.ledger.flush();
  }

  /** Ends the edge without a word and starts another on its journal; the host goes on. */
  async restart(): Promise<void> {
    this.journal = new KeptJournal(this.journal.lines);
    this.open.clear();
    this.ledger = this.#newLedger();
    await this.ledger.start();
  }

  /** What `usage check` finds at this moment. */
  async differences(): Promise<unknown[]> {
    const book = new LedgerBook();
    for (const { text, segment } of this.journal.lines) book.apply(journalEntrySchema.parse(JSON.parse(text)), segment);
    const journal = book.rows();
    const range = { fromMs: null, toMs: null, settledUpToMs: this.clock.nowMs() };
    const snapshot = await this.store.proofSnapshot({ ...range, requestIds: requestIdsOf(journal) });
    const sides = proofSides(snapshot, journal, range);
    const lines: Parameters<typeof addExported>[0] = new Map();
    const seen = new Set<string>();
    for await (const row of exportedRows(this.store, journal, range)) {
      addExported(lines, row);
      if (seen.has(row.requestId)) throw new Error(`the export has ${row.requestId} twice`);
      seen.add(row.requestId);
    }
    if (snapshot.billedWithoutUsage > 0) throw new Error("billed attempts have no row of usage");
    return [...differencesOf(sides), ...exportDifferences(sides, lines)];
  }
}

const picked = <Item>(items: readonly Item[], pick: number): Item | undefined =>
  items[pick % Math.max(1, items.length)];

const event = oneof(
  { weight: 4, arbitrary: record({ kind: constant("arrive" as const) }) },
  { weight: 6, arbitrary: record({ kind: constant("attempt" as const), pick: nat(20) }) },
  { weight: 4, arbitrary: record({ kind: constant("settle" as const), pick: nat(20), tokens: nat(60) }) },
  { weight: 5, arbitrary: record({ kind: constant("end" as const), pick: nat(20), tokens: nat(60) }) },
  { weight: 4, arbitrary: record({ kind: constant("report" as const), isLost: boolean() }) },
  { weight: 3, arbitrary: record({ kind: constant("flush" as const) }) },
  { weight: 1, arbitrary: record({ kind: constant("restart" as const) }) },
  { weight: 1, arbitrary: record({ kind: constant("store" as const), isAway: boolean() }) },
  { weight: 1, arbitrary: record({ kind: constant("wait" as const) }) },
  { weight: 1, arbitrary: record({ kind: constant("rotate" as const) }) },
);

it("the ledger's sums agree after every event, whatever is lost, repeated, late or killed", async () => {
  await assert(
    asyncProperty(array(event, { minLength: 20, maxLength: 80 }), async (events) => {
      const world = new World(await emptyStore());
      await world.ledger.start();
      for (const step of events) {
        if (step.kind === "arrive") world.arrive();
        else if (step.kind === "attempt") world.attempt(step.pick);
        else if (step.kind === "settle") world.settle(step.pick, step.tokens);
        else if (step.kind === "end") world.end(step.pick, step.tokens);
        else if (step.kind === "report") world.report(step.isLost);
        else if (step.kind === "flush") await world.flush();
        else if (step.kind === "restart") await world.restart();
        else if (step.kind === "store") world.isStoreAway = step.isAway;
        else if (step.kind === "rotate") world.journal.rotate();
        else world.clock.advance(35_000);
        expect(await world.differences()).toEqual([]);
      }
      world.isStoreAway = false;
      while (world.open.size > 0) world.settle(0, 7);
      while (world.host.running.size > 0) world.end(0, 11);
      world.report(false);
      world.clock.advance(120_000);
      await world.flush();
      await world.flush();
      expect(world.host.unacknowledged).toEqual([]);
      expect(world.journal.lines).toEqual([]);
      expect(await world.differences()).toEqual([]);
      const { attemptRows } = await world.store.requests(
        Array.from({ length: 100 }, (_, at) => `req_${String(at).padStart(4, "0")}`),
      );
      expect(attemptRows.filter((row) => row.unbilledReason === "unknown_request")).toEqual([]);
      await world.store.close();
    }),
    { numRuns: 30 },
  );
}, 120_000);
