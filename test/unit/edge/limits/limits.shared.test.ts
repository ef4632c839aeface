import { beforeEach, describe, expect, it } from "vitest";
import { MemoryLimits } from "../../../../edge/limits/limits.memory.ts";
import { SharedLimits } from "../../../../edge/limits/limits.shared.ts";
import { NO_SCOPE_LIMITS, type ReserveRequest, type ScopeLimits } from "../../../../edge/ports/limits.ts";
import type { SliceAnswer, SliceRequest } from "../../../../edge/ports/slice-store.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { keptLogger } from "../../../support/silent-logger.ts";

const DEFAULTS = { requestsPerMinute: 0, tokensPerMinute: 0, reservationTtlMs: 3_600_000 };

/** Lets promises that are due run; nothing here waits for a clock of the machine. */
const settled = async (): Promise<void> => {
  for (let turn = 0; turn < 50; turn += 1) await Promise.resolve();
};

describe("the limits of an edge among others", () => {
  let clock: ManualClock;
  let others: boolean;
  let asked: SliceRequest[];
  let answer: (request: SliceRequest) => SliceAnswer | Error | "never";
  let formerDropped: number;
  let hasFormer: boolean;
  let limits: SharedLimits;
  let number: number;
  beforeEach(() => {
    clock = new ManualClock();
    others = false;
    asked = [];
    formerDropped = 0;
    hasFormer = false;
    number = 0;
    answer = everything;
    limits = new SharedLimits({
      clock,
      logger: keptLogger().logger,
      own: new MemoryLimits(clock, DEFAULTS),
      identity: { name: "me", home: "h", run: "r" },
      membership: {
        get hasOthers() {
          return others;
        },
        share: () => undefined,
      },
      ledger: {
        flush: () => Promise.resolve(),
        get hasFormer() {
          return hasFormer;
        },
      },
      store: {
        takeSlices: (request) => {
          asked.push(request);
          const given = answer(request);
          if (given === "never") return new Promise(() => undefined);
          return given instanceof Error ? Promise.reject(given) : Promise.resolve(given);
        },
        dropFormerSlices: () => {
          formerDropped += 1;
          return Promise.resolve();
        },
      },
    });
  });

  /** As much as is wanted, and as much again. */
  function everything(request: SliceRequest): SliceAnswer {
    return {
      kind: "granted",
      waitsFor: null,
      edges: 2,
      rates: request.rates.map(({ need }) => ({ granted: 2 * need, left: 10, starvedForMs: null })),
      budgets: request.budgets.map(({ needNanoUsd }) => ({
        heldNanoUsd: (2n * BigInt(needNanoUsd)).toString(),
        freeNanoUsd: "1000",
        spentNanoUsd: "0",
        othersNanoUsd: "0",
        starvedForMs: null,
      })),
    };
  }

  const nothing =
    (starvedForMs: number, spentNanoUsd = "0") =>
    (request: SliceRequest): SliceAnswer => ({
      kind: "granted",
      waitsFor: null,
      edges: 2,
      rates: request.rates.map(() => ({ granted: 0, left: 0, starvedForMs })),
      budgets: request.budgets.map(({ committedNanoUsd }) => ({
        heldNanoUsd: committedNanoUsd,
        freeNanoUsd: "0",
        spentNanoUsd,
        othersNanoUsd: "0",
        starvedForMs,
      })),
    });

  const request = (keyLimits: Partial<ScopeLimits>, costBoundNanoUsd = "0"): ReserveRequest => ({
    account: "acme",
    requestId: `r${++number}`,
    atMs: clock.nowMs(),
    model: "demo",
    scopes: [
      { id: "key:k", limits: { ...NO_SCOPE_LIMITS, ...keyLimits } },
      { id: "project:p", limits: NO_SCOPE_LIMITS },
      { id: "account:acme", limits: NO_SCOPE_LIMITS },
    ],
    inputTokensEstimate: 1,
    outputTokensLimit: 1,
    costBoundNanoUsd,
  });

  /** The decision, as time passes; undefined while it waits. */
  async function within(ms: number, reserving: ReturnType<SharedLimits["reserve"]>) {
    const made: Awaited<typeof reserving>[] = [];
    void reserving.then((decision) => made.push(decision));
    await settled();
    for (let passed = 0; passed < ms && made.length === 0; passed += 50) {
      clock.advance(50);
      await settled();
    }
    return made[0];
  }

  async function share(): Promise<void> {
    others = true;
    await limits.start(0);
    asked.length = 0;
  }

  it("does not ask the database while it is alone, and decides as one edge does", async () => {
    await limits.start(0);
    expect(await limits.reserve(request({ requestsPerMinute: 1 }))).toMatchObject({ kind: "granted" });
    expect(await limits.reserve(request({ requestsPerMinute: 1 }))).toMatchObject({ code: "rate_limit_exceeded" });
    clock.advance(10_000);
    await settled();
    expect(asked).toEqual([]);
  });

  it("tells what it used alone before it takes from what is shared", async () => {
    await limits.start(0);
    const rates = { requestsPerMinute: 10, budgetNanoUsd: "1000" };
    for (let made = 0; made < 4; made += 1) await limits.reserve(request(rates, "100"));
    others = true;
    clock.advance(1_000);
    await settled();
    const [first] = asked;
    expect(first?.rates).toMatchObject([{ scope: "key:k", resource: "requests", perMinute: 10, left: 6 }]);
    expect(first?.budgets).toMatchObject([{ committedNanoUsd: "400", needNanoUsd: "400" }]);
    expect(await within(0, limits.reserve(request(rates, "100")))).toMatchObject({ kind: "granted" });
    expect(asked.at(-1)?.rates).toMatchObject([{ left: null, need: 1 }]);
  });

  it("waits for the database only when its slice is used up", async () => {
    await share();
    const rate = { requestsPerMinute: 100 };
    expect(await within(0, limits.reserve(request(rate)))).toMatchObject({ kind: "granted" });
    expect(asked).toHaveLength(1);
    answer = () => "never";
    expect(await within(0, limits.reserve(request(rate)))).toMatchObject({ kind: "granted" });
    expect(await within(1_000, limits.reserve(request(rate)))).toBeUndefined();
  });

  it("waits a bounded time for others to give back, then refuses with the time that helps", async () => {
    await share();
    answer = nothing(0);
    const refused = await within(5_000, limits.reserve(request({ requestsPerMinute: 6 })));
    expect(refused).toMatchObject({ kind: "refused", code: "rate_limit_exceeded", retryAfterSeconds: 10 });
    expect(asked.length).toBeGreaterThan(3);
    // Refused here, it takes nothing of this edge's own count either.
    answer = everything;
    expect(await within(1_000, limits.reserve(request({ requestsPerMinute: 6 })))).toMatchObject({ kind: "granted" });
  });

  it("refuses at once where the others have had their time to give back, and what is spent for good", async () => {
    await share();
    answer = nothing(2_000);
    expect(await within(0, limits.reserve(request({ requestsPerMinute: 6 })))).toMatchObject({ kind: "refused" });
    answer = nothing(0, "950");
    expect(await within(0, limits.reserve(request({ budgetNanoUsd: "1000" }, "100")))).toMatchObject({
      code: "insufficient_quota",
      retryAfterSeconds: null,
    });
  });

  it("goes on with its part of the rates when the database is away, and with no more of a budget than it holds", async () => {
    await share();
    const rate = { requestsPerMinute: 120 };
    expect(await within(0, limits.reserve(request(rate)))).toMatchObject({ kind: "granted" });
    answer = () => new Error("away");
    let granted = 0;
    for (let second = 0; second < 60; second += 1) {
      for (let tries = 0; tries < 5; tries += 1)
        if ((await within(0, limits.reserve(request(rate))))?.kind === "granted") granted += 1;
      clock.advance(1_000);
      await settled();
    }
    // Half of 120, and what it had in its hand.
    expect(granted).toBeGreaterThanOrEqual(55);
    expect(granted).toBeLessThanOrEqual(62);
    expect(await within(0, limits.reserve(request({ budgetNanoUsd: "1000" }, "100")))).toMatchObject({
      code: "limits_unavailable",
    });
    answer = everything;
    clock.advance(1_000);
    await settled();
    expect(await within(0, limits.reserve(request({ budgetNanoUsd: "1000" }, "100")))).toMatchObject({
      kind: "granted",
    });
  });

  it("says so after a bounded time when the database takes a question and does not answer", async () => {
    await share();
    answer = () => "never";
    expect(await within(4_000, limits.reserve(request({ budgetNanoUsd: "1000" }, "100")))).toMatchObject({
      kind: "refused",
      code: "limits_unavailable",
      retryAfterSeconds: 5,
    });
  });

  it("holds a request's money until its row is in the database", async () => {
    await share();
    const budget = request({ budgetNanoUsd: "1000" }, "100");
    await within(0, limits.reserve(budget));
    expect(limits.reservedNanoUsd(budget.requestId)).toBe(100n);
    const settlement = { account: "acme", totalTokens: 2, completionTokens: 1, costNanoUsd: "30" };
    await limits.settle({ ...settlement, reservationId: budget.requestId });
    const committed = async (): Promise<string | undefined> => {
      asked.length = 0;
      clock.advance(1_000);
      await settled();
      return asked[0]?.budgets[0]?.committedNanoUsd;
    };
    expect(await committed()).toBe("30");
    limits.recorded([budget.requestId]);
    expect(await committed()).toBe("0");
    expect(limits.reservedNanoUsd(budget.requestId)).toBe(0n);
  });

  it("keeps what its former process held until that one's requests are written, and a while longer", async () => {
    hasFormer = true;
    await limits.start(0);
    const pass = async (seconds: number): Promise<void> => {
      for (let second = 0; second < seconds; second += 1) {
        clock.advance(1_000);
        await settled();
      }
    };
    await pass(120);
    expect(formerDropped).toBe(0);
    hasFormer = false;
    await pass(58);
    expect(formerDropped).toBe(0);
    await pass(5);
    expect(formerDropped).toBe(1);
  });

  it("gives back at its end all but what runs", async () => {
    await share();
    await within(0, limits.reserve(request({ requestsPerMinute: 100, budgetNanoUsd: "1000" }, "100")));
    asked.length = 0;
    await limits.close();
    expect(asked).toHaveLength(1);
    expect(asked[0]?.rates).toMatchObject([{ back: 1, ahead: false }]);
    expect(asked[0]?.budgets).toMatchObject([{ keepNanoUsd: "100", ahead: false }]);
    expect(clock.pendingTimers).toBe(0);
  });
});
