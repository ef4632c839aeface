import { beforeEach, expect, it } from "vitest";
import { JournaledLedger, LEDGER_WAITS, type AdjustedSpending } from "../../../../edge/usage/journaled-ledger.ts";
import { KeptJournal, type JournalLine } from "../../../support/kept-journal.ts";
import { KeptStore } from "../../../support/kept-store.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { silentLogger } from "../../../support/dispatch-fakes.ts";
import { endedAttempt, endedRequest, opened, settledRequest, START_MS } from "../../../support/usage-rows.ts";

const unused = (): Promise<never> => Promise.reject(new Error("not part of this test"));
const started = { requestId: "r1", attempt: 1, backend: "gpu-1", replica: "r1", epoch: 7 };
/** Of the rows of this test: 10 prompt tokens, 4 of them cached, 20 generated. */
const OWN = 6n * 100n + 4n * 10n + 20n * 1_000n;
const adjustment = (nanoUsd: bigint): AdjustedSpending => ({
  account: "acme",
  project: "p1",
  keyId: "k1",
  atMs: START_MS,
  nanoUsd,
});

let clock: ManualClock;
let store: KeptStore;
beforeEach(() => {
  clock = new ManualClock(START_MS);
  store = new KeptStore();
});

/** A ledger whose budgets were charged with the counts of whoever settled. */
async function start(former: readonly JournalLine[] = []) {
  const journal = new KeptJournal(former);
  const adjusted: AdjustedSpending[] = [];
  const ledger = new JournaledLedger({
    clock,
    logger: silentLogger,
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
    onAdjusted: (entry) => adjusted.push(entry),
    ownCountsAreCharged: true,
  });
  await ledger.start();
  return { ledger, journal, adjusted };
}

const waiting = settledRequest("r1", { attempts: [endedAttempt("r1", { exactness: "counted", awaitReport: true })] });

it("counts that stand at once change no budget", async () => {
  const { ledger, adjusted } = await start();
  ledger.open(opened("r1"));
  ledger.attemptStarted(started);
  ledger.settle(settledRequest("r1"));
  ledger.shed(opened("r2"), 5);
  expect(adjusted).toEqual([]);
});

it("a machine's first report changes budgets by what it says otherwise, and a later one by the rest", async () => {
  const { ledger, adjusted } = await start();
  ledger.open(opened("r1"));
  ledger.attemptStarted(started);
  ledger.settle(waiting);
  expect(adjusted).toEqual([]);
  ledger.acceptReport("gpu-1", [endedRequest("r1", { computed_completion: 25 })], []);
  expect(adjusted).toEqual([adjustment(5_000n)]);
});

it("own counts that no report ever changes stay as they were charged", async () => {
  const { ledger, adjusted } = await start();
  ledger.open(opened("r1"));
  ledger.attemptStarted(started);
  ledger.settle(waiting);
  clock.advance(LEDGER_WAITS.reportWaitMs + 1_000);
  // The first may have begun before.
  for (let turn = 0; turn < 2; turn++) await ledger.flush();
  expect(store.usage.get("r1")).toMatchObject({ costNanoUsd: OWN.toString() });
  expect(adjusted).toEqual([]);
});

it("a restart in between charges nothing twice, and what nobody settled in full", async () => {
  const first = await start();
  for (const id of ["r1", "r2"]) {
    first.ledger.open(opened(id));
    first.ledger.attemptStarted({ ...started, requestId: id });
  }
  first.ledger.settle(waiting);
  const second = await start(first.journal.lines);
  second.ledger.acceptReport("gpu-1", [endedRequest("r1", { computed_completion: 19 }), endedRequest("r2")], []);
  expect(second.adjusted).toEqual([adjustment(-1_000n), adjustment(OWN)]);
});
