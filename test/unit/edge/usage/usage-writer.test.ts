import { beforeEach, describe, expect, it } from "vitest";
import { journalEntrySchema } from "../../../../edge/usage/journal-entry.ts";
import { JournaledLedger, LEDGER_WAITS } from "../../../../edge/usage/journaled-ledger.ts";
import { LedgerBook } from "../../../../edge/usage/ledger-book.ts";
import { KeptJournal, type JournalLine } from "../../../support/kept-journal.ts";
import { KeptStore } from "../../../support/kept-store.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { keptLogger } from "../../../support/silent-logger.ts";
import { opened, settledRequest, START_MS } from "../../../support/usage-rows.ts";

let clock: ManualClock;
let store: KeptStore;
let lines: string[];

beforeEach(() => {
  clock = new ManualClock(START_MS);
  store = new KeptStore();
});

const unused = (): Promise<never> => Promise.reject(new Error("not part of this test"));

async function start(former: readonly JournalLine[] = []): Promise<{ ledger: JournaledLedger; journal: KeptJournal }> {
  const journal = new KeptJournal(former);
  const kept = keptLogger();
  lines = kept.lines;
  const ledger = new JournaledLedger({
    clock,
    logger: kept.logger,
    journal,
    store: {
      record: (batch) => store.record(batch),
      usagePage: unused,
      requests: (requestIds) => store.requests(requestIds),
      proofSnapshot: unused,
      spent: unused,
      priceVersion: unused,
    },
    edge: "edge",
    settings: { flushIntervalMs: 1_000, batchSize: 3, bufferSize: 5, ...LEDGER_WAITS },
    onSettled: () => undefined,
  });
  await ledger.start();
  return { ledger, journal };
}

async function tick(ms = 1_000): Promise<void> {
  clock.advance(ms);
  for (let turn = 0; turn < 60; turn += 1) await Promise.resolve();
}

const onHost = (requestId: string, attempt = 1) => ({ requestId, attempt, backend: "gpu-1", replica: "r1", epoch: 7 });
describe("rows that the database refuses while it takes others", () => {
  const complete = (ledger: JournaledLedger, ids: readonly string[]): void => {
    for (const id of ids) {
      ledger.open(opened(id));
      ledger.attemptStarted(onHost(id));
      ledger.settle(settledRequest(id));
    }
  };
  const complaints = (): string[] => lines.filter((line) => line.includes("refuses the usage of a request"));

  it("hold nobody up, stay in the journal and are named once, also after a restart", async () => {
    const { ledger, journal } = await start();
    store.refused = "r2";
    complete(ledger, ["r1", "r2", "r3", "r4", "r5"]);
    await tick();
    expect([...store.usage.keys()]).toEqual(["r1", "r3", "r4", "r5"]);
    expect(complaints()).toHaveLength(1);
    expect(complaints()[0]).toContain('"request_id":"r2"');
    for (let turn = 0; turn < 5; turn += 1) await tick();
    expect(complaints()).toHaveLength(1);
    const book = new LedgerBook();
    for (const { text, segment } of journal.lines) book.apply(journalEntrySchema.parse(JSON.parse(text)), segment);
    expect(book.refused()).toEqual([{ requestId: "r2", reason: "datatype mismatch" }]);
    expect(book.rows().usage.map(({ requestId }) => requestId)).toContain("r2");
    store.refused = null;
    await start(journal.lines);
    expect(store.usage.has("r2")).toBe(true);
  });

  it("are tried again after a while, in case that somebody mended what stood against them", async () => {
    const { ledger } = await start();
    store.refused = "r1";
    complete(ledger, ["r1", "r2"]);
    await tick();
    store.refused = null;
    await tick();
    expect(store.usage.has("r1")).toBe(false);
    await tick(600_000);
    expect(store.usage.has("r1")).toBe(true);
  });

  it("are told apart from a database that is away, also where there is only one", async () => {
    const { ledger } = await start();
    store.refused = "r1";
    complete(ledger, ["r1"]);
    await tick();
    expect(complaints()).toHaveLength(0);
    for (let turn = 0; turn < 60; turn += 1) await tick();
    expect(complaints()).toHaveLength(1);
    complete(ledger, ["r2"]);
    await tick();
    expect([...store.usage.keys()]).toEqual(["r2"]);
  });
});

describe("a journal that could not be made durable", () => {
  it("has its lines written again, to another segment, before it counts as durable", async () => {
    const { ledger, journal } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    journal.syncFailure = new Error("EIO");
    await tick();
    expect(journal.lines.map(({ segment }) => segment)).toEqual([1, 1]);
    journal.syncFailure = null;
    await tick();
    // The lines of the segment in doubt are not needed any more, so it is gone.
    const again = (): unknown[] => journal.lines.map(({ text, segment }) => [JSON.parse(text).kind, segment]);
    expect(again()).toEqual([
      ["open", 2],
      ["attempt", 2],
    ]);
    await tick();
    expect(again()).toHaveLength(2);
    expect(lines.filter((line) => line.includes("durable again"))).toHaveLength(1);
  });
});
