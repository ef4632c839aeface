import { beforeEach, describe, expect, it } from "vitest";
import type { OnSettled } from "../../../../edge/ports/ledger.ts";
import { JournaledLedger, LEDGER_WAITS, type AdjustedSpending } from "../../../../edge/usage/journaled-ledger.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { KeptStore } from "../../../support/kept-store.ts";
import { KeptJournal, type JournalLine } from "../../../support/kept-journal.ts";
import { keptLogger } from "../../../support/silent-logger.ts";
import {
  endedAttempt,
  endedRequest,
  HOUR_MS,
  opened,
  settledRequest,
  START_MS,
  usageRow,
} from "../../../support/usage-rows.ts";

type Settled = Parameters<OnSettled>[0];

interface Run {
  readonly ledger: JournaledLedger;
  readonly journal: KeptJournal;
  readonly settled: Settled[];
  readonly adjusted: AdjustedSpending[];
}

let clock: ManualClock;
let store: KeptStore;
let lines: string[];

beforeEach(() => {
  clock = new ManualClock(START_MS);
  store = new KeptStore();
});

const unused = (): Promise<never> => Promise.reject(new Error("not part of this test"));

async function start(former: readonly JournalLine[] = []): Promise<Run> {
  const journal = new KeptJournal(former);
  const settled: Settled[] = [];
  const adjusted: AdjustedSpending[] = [];
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
    onSettled: (entry) => settled.push(entry),
    onAdjusted: (entry) => adjusted.push(entry),
  });
  await ledger.start();
  return { ledger, journal, settled, adjusted };
}

async function tick(ms = 1_000): Promise<void> {
  clock.advance(ms);
  for (let turn = 0; turn < 60; turn += 1) await Promise.resolve();
}

const onHost = (requestId: string, attempt = 1) => ({ requestId, attempt, backend: "gpu-1", replica: "r1", epoch: 7 });
const COST = 6n * 100n + 4n * 10n + 20n * 1_000n;

describe("a request", () => {
  it("becomes one row of exact counts and cost, with its attempt", async () => {
    const { ledger, settled } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    clock.advance(80);
    ledger.settle(settledRequest("r1"));
    expect(settled).toEqual([
      {
        requestId: "r1",
        account: "acme",
        counts: { promptTokens: 10, cachedTokens: 4, completionTokens: 20 },
        costNanoUsd: COST,
      },
    ]);
    await tick();
    expect(store.usage.get("r1")).toMatchObject({
      atMs: START_MS,
      settledAtMs: START_MS + 80,
      costNanoUsd: COST.toString(),
      exactness: "exact",
      outcome: "completed",
      ttftMs: 12,
      totalMs: 80,
    });
    expect(store.attempts.get("r1.1")).toMatchObject({ endedHourMs: null, unbilledReason: null, computedPrompt: 6 });
  });

  it("is billed as the model that answered in another's stead, also when the edge died before it was settled", async () => {
    const served = {
      model: "spare",
      price: { promptPer1k: 7, cachedPer1k: 7, completionPer1k: 7 },
      priceVersion: 2,
    };
    const first = await start();
    first.ledger.open(opened("r1"));
    first.ledger.attemptStarted(onHost("r1"));
    first.ledger.attemptStarted({ ...onHost("r1", 2), served });
    first.ledger.settle(
      settledRequest("r1", {
        attempts: [endedAttempt("r1", { unbilledReason: "retry" }), endedAttempt("r1", { attempt: 2 })],
      }),
    );
    expect(first.settled).toMatchObject([{ costNanoUsd: 30n * 7n }]);
    await tick();
    expect(store.usage.get("r1")).toMatchObject({ ...served, costNanoUsd: "210" });

    first.ledger.open(opened("r2"));
    first.ledger.attemptStarted({ ...onHost("r2"), served });
    const second = await start(first.journal.lines);
    second.ledger.acceptReport("gpu-1", [endedRequest("r2")], []);
    await tick();
    expect(store.usage.get("r2")).toMatchObject({ model: "spare", priceVersion: 2 });
  });

  it("is settled once", async () => {
    const { ledger, settled } = await start();
    ledger.open(opened("r1"));
    ledger.settle(settledRequest("r1"));
    ledger.settle(settledRequest("r1", { outcome: "failed" }));
    ledger.settle(settledRequest("never-opened"));
    await tick();
    expect(settled).toHaveLength(1);
    expect([...store.usage.values()].map(({ outcome }) => outcome)).toEqual(["completed"]);
  });

  it("that is shed is a row of zeros, opened before or not", async () => {
    const { ledger, settled } = await start();
    ledger.open(opened("r1"));
    ledger.shed(opened("r1"), 5);
    ledger.shed(opened("r2"), 6);
    await tick();
    expect(settled.map(({ costNanoUsd }) => costNanoUsd)).toEqual([0n, 0n]);
    expect([...store.usage.values()].map((row) => [row.outcome, row.promptTokens, row.costNanoUsd])).toEqual([
      ["shed", 0, "0"],
      ["shed", 0, "0"],
    ]);
  });

  it("is refused while the journal has no room, and running ones still end", async () => {
    const { ledger, journal } = await start();
    ledger.open(opened("r1"));
    journal.room = false;
    expect(() => ledger.open(opened("r2"))).toThrow(expect.objectContaining({ code: "usage_journal_full" }));
    ledger.settle(settledRequest("r1"));
    await tick();
    expect(store.usage.has("r1")).toBe(true);
  });

  it("bills the attempt that answered, and keeps the others with their reason", async () => {
    const { ledger } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1", 1));
    ledger.attemptStarted({ ...onHost("r1", 2), backend: "gpu-2" });
    const failed = endedAttempt("r1", {
      counts: { promptTokens: 7, cachedTokens: 0, completionTokens: 0 },
      unbilledReason: "failed_before_first_token",
    });
    ledger.settle(settledRequest("r1", { attempts: [failed, endedAttempt("r1", { attempt: 2 })], backend: "gpu-2" }));
    await tick();
    expect(store.usage.get("r1")).toMatchObject({ promptTokens: 10, completionTokens: 20, backend: "gpu-2" });
    expect(store.attempts.get("r1.1")).toMatchObject({
      unbilledReason: "failed_before_first_token",
      computedPrompt: 7,
    });
    expect(store.attempts.get("r1.2")).toMatchObject({ unbilledReason: null, backend: "gpu-2" });
  });
});

describe("a machine's report", () => {
  it("settles exactly a stream that the client cut", async () => {
    const { ledger, settled } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    const counted = endedAttempt("r1", {
      counts: { promptTokens: 10, cachedTokens: 0, completionTokens: 5 },
      exactness: "counted",
      awaitReport: true,
    });
    ledger.settle(settledRequest("r1", { outcome: "cancelled", attempts: [counted] }));
    await tick();
    expect(settled).toEqual([]);
    expect(store.usage.has("r1")).toBe(false);
    clock.advance(200);
    ledger.acceptReport("gpu-1", [endedRequest("r1", { computed_completion: 8 })], []);
    expect(settled.map(({ counts }) => counts)).toEqual([{ promptTokens: 10, cachedTokens: 4, completionTokens: 8 }]);
    await tick();
    expect(store.usage.get("r1")).toMatchObject({ outcome: "cancelled", exactness: "exact", completionTokens: 8 });
    expect(store.attempts.get("r1.1")).toMatchObject({ endedHourMs: START_MS, computedCompletion: 8 });
  });

  it("is waited for half a minute, then the edge's own count stands", async () => {
    const { ledger, settled } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    ledger.settle(
      settledRequest("r1", { attempts: [endedAttempt("r1", { exactness: "counted", awaitReport: true })] }),
    );
    expect(ledger.askedOf("gpu-1")).toEqual([]);
    for (let second = 0; second < 29; second += 1) await tick();
    expect(settled).toEqual([]);
    expect(ledger.askedOf("gpu-1")).toEqual([{ request_id: "r1", attempt: 1, replica: "r1", epoch: 7 }]);
    await tick();
    await tick();
    expect(ledger.askedOf("gpu-1")).toEqual([]);
    expect(settled).toHaveLength(1);
    expect(store.usage.get("r1")).toMatchObject({ exactness: "counted", settledAtMs: START_MS + 30_000 });
  });

  it("that comes after the row was written corrects row, attempt and budget together", async () => {
    const { ledger, settled, adjusted } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    ledger.settle(settledRequest("r1", { attempts: [endedAttempt("r1", { exactness: "counted" })] }));
    await tick();
    await tick(4_000);
    ledger.acceptReport("gpu-1", [endedRequest("r1", { computed_completion: 21 })], []);
    await tick();
    expect(store.usage.get("r1")).toMatchObject({
      completionTokens: 21,
      exactness: "exact",
      settledAtMs: START_MS + 5_000,
      costNanoUsd: (COST + 1_000n).toString(),
    });
    expect(store.attempts.get("r1.1")).toMatchObject({ computedCompletion: 21, endedHourMs: START_MS });
    expect(settled).toHaveLength(1);
    expect(adjusted).toEqual([{ account: "acme", project: "p1", keyId: "k1", atMs: START_MS, nanoUsd: 1_000n }]);
  });

  it("is acknowledged each time, after it left this process, and counted once", async () => {
    const { ledger, journal } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    ledger.settle(settledRequest("r1"));
    const counter = {
      epoch: 7,
      hour: START_MS,
      requests: 1,
      computed_prompt: 6,
      cached_prompt: 4,
      computed_completion: 20,
    };
    for (let time = 0; time < 3; time += 1) {
      expect(ledger.acceptReport("gpu-1", [endedRequest("r1")], [counter])).toEqual([{ request_id: "r1", attempt: 1 }]);
    }
    expect(journal.lines.filter(({ text }) => text.includes('"kind":"report"'))).toHaveLength(1);
    expect(journal.writeOuts).toBe(1);
    await tick();
    expect(store.batches.flatMap(({ counters }) => counters)).toEqual([
      {
        host: "gpu-1",
        edge: "edge",
        epoch: 7,
        hourMs: START_MS,
        requests: 1,
        computedPrompt: 6,
        cachedPrompt: 4,
        computedCompletion: 20,
      },
    ]);
  });

  it("that comes before the edge's own end is kept, billed to nobody until then", async () => {
    const { ledger } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    ledger.acceptReport("gpu-1", [endedRequest("r1", { ended_at: START_MS + HOUR_MS })], []);
    await tick();
    expect(store.attempts.get("r1.1")).toMatchObject({
      unbilledReason: "not_settled",
      endedHourMs: START_MS + HOUR_MS,
    });
    expect(store.usage.size).toBe(0);
    ledger.settle(settledRequest("r1"));
    await tick();
    expect(store.attempts.get("r1.1")).toMatchObject({ unbilledReason: null });
    expect(store.usage.has("r1")).toBe(true);
  });

  it("of another host's attempt changes nothing", async () => {
    const { ledger } = await start();
    ledger.open(opened("r1"));
    ledger.attemptStarted(onHost("r1"));
    ledger.settle(settledRequest("r1"));
    ledger.acceptReport("gpu-2", [endedRequest("r1", { computed_completion: 9_999 })], []);
    await tick();
    expect(store.usage.get("r1")?.completionTokens).toBe(20);
    expect(lines.some((line) => line.includes("another host"))).toBe(true);
  });

  it("of a request that is no longer held goes to the database as a correction", async () => {
    const { ledger } = await start();
    ledger.acceptReport("gpu-1", [endedRequest("old")], []);
    await tick();
    expect(store.batches.flatMap(({ lateReports }) => lateReports)).toMatchObject([
      { attempt: { requestId: "old", computedCompletion: 20 }, reportedAtMs: START_MS },
    ]);
  });
});

describe("many requests at once", () => {
  it("are written as soon as they fill a transaction, and the rest with the timer", async () => {
    const { ledger } = await start();
    for (const requestId of ["r1", "r2", "r3", "r4"]) {
      ledger.open(opened(requestId));
      ledger.settle(settledRequest(requestId));
    }
    await tick(0);
    expect([...store.usage.keys()]).toEqual(["r1", "r2", "r3"]);
    await tick();
    expect(store.batches.map(({ usage }) => usage.length)).toEqual([3, 1]);
  });
});

describe("while the database is away", () => {
  it("rows wait, in memory or beyond its bound in the journal, and are written in batches when it is back", async () => {
    const { ledger, journal } = await start();
    store.away = true;
    for (let at = 0; at < 7; at += 1) {
      ledger.open(opened(`r${at}`));
      ledger.settle(settledRequest(`r${at}`));
    }
    await tick();
    await tick();
    expect(journal.lines.length).toBeGreaterThan(0);
    store.away = false;
    for (let second = 0; second < 4; second += 1) await tick();
    expect(store.usage.size).toBe(7);
    // The first asks whether the database is there.
    expect(store.batches.map(({ usage }) => usage.length)).toEqual([0, 3, 2, 2]);
    expect(lines.filter((line) => line.includes('"level":"error"'))).toHaveLength(1);
    expect(journal.lines).toEqual([]);
  });

  it("a report about a row that is only in the journal finds it there", async () => {
    const { ledger, journal } = await start();
    store.away = true;
    for (let at = 0; at < 8; at += 1) {
      ledger.open(opened(`r${at}`));
      ledger.attemptStarted(onHost(`r${at}`));
      ledger.settle(settledRequest(`r${at}`, { attempts: [endedAttempt(`r${at}`, { exactness: "counted" })] }));
    }
    journal.rotate();
    journal.append({ kind: "waited", requestId: "none", atMs: 0 });
    journal.rotate();
    const ended = Array.from({ length: 8 }, (_, at) => endedRequest(`r${at}`, { computed_completion: 30 + at }));
    expect(ledger.acceptReport("gpu-1", ended, [])).toHaveLength(8);
    store.away = false;
    for (let second = 0; second < 4; second += 1) await tick();
    expect([...store.usage.values()].map((row) => [row.exactness, row.completionTokens])).toEqual(
      expect.arrayContaining(Array.from({ length: 8 }, (_, at) => ["exact", 30 + at])),
    );
    expect([...store.attempts.values()].map(({ unbilledReason }) => unbilledReason)).toEqual(
      Array.from({ length: 8 }, () => null),
    );
    expect(store.batches.flatMap(({ lateReports }) => lateReports)).toEqual([]);
    expect(journal.lines).toEqual([]);
  });

  it("asks it less and less often", async () => {
    const { ledger } = await start();
    let tries = 0;
    store.record = () => {
      tries += 1;
      return Promise.reject(new Error("away"));
    };
    ledger.open(opened("r1"));
    ledger.settle(settledRequest("r1"));
    for (let second = 0; second < 60; second += 1) await tick();
    expect(tries).toBeGreaterThan(3);
    expect(tries).toBeLessThan(9);
  });
});

describe("after the process died", () => {
  it("rows that the database does not have are written, and those that it has change nothing", async () => {
    const first = await start();
    store.away = true;
    first.ledger.open(opened("r1"));
    first.ledger.attemptStarted(onHost("r1"));
    first.ledger.settle(settledRequest("r1"));
    store.away = false;
    const second = await start(first.journal.lines);
    expect([...store.usage.keys()]).toEqual(["r1"]);
    expect(second.settled).toEqual([]);
    const third = await start(first.journal.lines);
    expect(store.usage.size).toBe(1);
    expect(third.adjusted).toEqual([]);
  });

  it("an open request waits for its machine and is settled by the report, exactly", async () => {
    const first = await start();
    first.ledger.open(opened("r1"));
    first.ledger.attemptStarted(onHost("r1"));
    const second = await start(first.journal.lines);
    await tick();
    expect(store.usage.size).toBe(0);
    second.ledger.acceptReport("gpu-1", [endedRequest("r1", { outcome: "cancelled" })], []);
    await tick();
    expect(store.usage.get("r1")).toMatchObject({ outcome: "cancelled", exactness: "exact", completionTokens: 20 });
    expect(store.attempts.get("r1.1")).toMatchObject({ unbilledReason: null, exactness: "exact" });
    expect(second.adjusted).toEqual([{ account: "acme", project: "p1", keyId: "k1", atMs: START_MS, nanoUsd: COST }]);
  });

  it("an open request's machine is asked for its report at once", async () => {
    const first = await start();
    first.ledger.open(opened("r1"));
    first.ledger.attemptStarted(onHost("r1"));
    const second = await start(first.journal.lines);
    expect(second.ledger.askedOf("gpu-1")).toEqual([{ request_id: "r1", attempt: 1, replica: "r1", epoch: 7 }]);
    expect(second.ledger.askedOf("gpu-2")).toEqual([]);
    second.ledger.acceptReport("gpu-1", [endedRequest("r1")], []);
    expect(second.ledger.askedOf("gpu-1")).toEqual([]);
  });

  it("an open request that another edge settled meanwhile is left as that one wrote it", async () => {
    const first = await start();
    for (const requestId of ["theirs", "mine"]) {
      first.ledger.open(opened(requestId));
      first.ledger.attemptStarted(onHost(requestId));
    }
    store.usage.set("theirs", usageRow("theirs"));
    const second = await start(first.journal.lines);
    for (let passed = 0; passed < 62; passed += 1) await tick();
    expect(store.usage.get("theirs")).toEqual(usageRow("theirs"));
    expect(store.usage.get("mine")).toMatchObject({ outcome: "failed", exactness: "estimated" });
    expect(second.settled.map(({ requestId }) => requestId)).toEqual(["mine"]);
  });

  it("an open request whose machine never reports fails after a minute", async () => {
    const first = await start();
    first.ledger.open(opened("r1"));
    first.ledger.attemptStarted(onHost("r1"));
    await start(first.journal.lines);
    for (let second = 0; second < 59; second += 1) await tick();
    expect(store.usage.size).toBe(0);
    await tick();
    await tick();
    expect(store.usage.get("r1")).toMatchObject({ outcome: "failed", exactness: "estimated", costNanoUsd: "0" });
  });

  it("an open request that reached no machine, or one that never reports, fails at once", async () => {
    const first = await start();
    first.ledger.open(opened("queued"));
    first.ledger.open(opened("static"));
    first.ledger.attemptStarted({ ...onHost("static"), backend: "cloud", epoch: null });
    await start(first.journal.lines);
    expect([...store.usage.values()].map(({ requestId, outcome }) => [requestId, outcome])).toEqual([
      ["queued", "failed"],
      ["static", "failed"],
    ]);
  });

  it("lines that are not of this version are counted and skipped", async () => {
    const { journal } = await start([{ text: '{"kind":"dance"}', segment: 1 }]);
    expect(lines.some((line) => line.includes("cannot be read"))).toBe(true);
    expect(journal.lines).toEqual([]);
  });
});

describe("the journal's segments", () => {
  it("go when the database has their rows", async () => {
    const { ledger, journal } = await start();
    ledger.open(opened("r1"));
    ledger.settle(settledRequest("r1"));
    expect(journal.lines).toHaveLength(2);
    await tick();
    expect(journal.lines).toEqual([]);
  });

  it("do not pile up behind a request that runs long", async () => {
    const { ledger, journal } = await start();
    ledger.open(opened("long"));
    ledger.attemptStarted(onHost("long"));
    for (let round = 0; round < 12; round += 1) {
      ledger.open(opened(`r${round}`));
      ledger.settle(settledRequest(`r${round}`));
      journal.rotate();
      await tick();
    }
    const { oldest, newest } = journal.segments();
    expect(newest - oldest).toBeLessThanOrEqual(5);
    const second = await start(journal.lines);
    second.ledger.acceptReport("gpu-1", [endedRequest("long")], []);
    await tick();
    expect(store.usage.get("long")).toMatchObject({ exactness: "exact" });
  });
});
