import { NO_SCOPE_LIMITS } from "../../../../edge/ports/limits.ts";
import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AccountLimits } from "../../../../edge/limits/account-limits.ts";
import { MemoryLimits } from "../../../../edge/limits/limits.memory.ts";
import { spendingOf } from "../../../../edge/limits/scopes.ts";
import type { ReserveDecision, ReserveRequest, ScopeLimits } from "../../../../edge/ports/limits.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const NONE: ScopeLimits = NO_SCOPE_LIMITS;
const UNLIMITED = { requestsPerMinute: 0, tokensPerMinute: 0, reservationTtlMs: 600_000 };

/** In the last day of a month. */
const NOON_MS = Date.UTC(2026, 10, 30, 12);
const MIDNIGHT_MS = Date.UTC(2026, 11, 1);
const DAY_MS = 86_400_000;

let lastId = 0;
function request(key: Partial<ScopeLimits>, more: Partial<ReserveRequest> = {}): ReserveRequest {
  return {
    account: "acme",
    requestId: `req_${++lastId}`,
    atMs: NOON_MS,
    model: "m",
    scopes: [
      { id: "key:k1", limits: { ...NONE, ...key } },
      { id: "project:p1", limits: NONE },
    ],
    inputTokensEstimate: 10,
    outputTokensLimit: 40,
    costBoundNanoUsd: "0",
    ...more,
  };
}

interface Used {
  readonly nowMs: number;
  readonly tokens: number;
  readonly costNanoUsd?: string;
}

function settle(limits: AccountLimits, decision: ReserveDecision, { nowMs, tokens, costNanoUsd = "0" }: Used): void {
  if (decision.kind !== "granted") throw new Error("it was refused");
  const { reservationId } = decision;
  limits.settle({ account: "acme", reservationId, totalTokens: tokens, completionTokens: tokens, costNanoUsd }, nowMs);
}

const byProject = (projectRpm: number): ReserveRequest["scopes"] => [
  { id: "key:k1", limits: { ...NONE, requestsPerMinute: 2, tokensPerMinute: 1_000 } },
  { id: "project:p1", limits: { ...NONE, requestsPerMinute: projectRpm } },
];
const ofBudgets = (project: string): ReserveRequest["scopes"] => [
  { id: "key:k1", limits: { ...NONE, budgetNanoUsd: "40" } },
  { id: "project:p1", limits: { ...NONE, budgetNanoUsd: project } },
];
const stream = (): ReserveRequest => request({ tokensPerMinute: 200 }, { outputTokensLimit: null });
const large = (outputTokensLimit: number | null): ReserveRequest =>
  request({ tokensPerMinute: 60 }, { outputTokensLimit, inputTokensEstimate: 100 });
const ask = (budgetNanoUsd: string | null, costBoundNanoUsd = "10"): ReserveRequest =>
  request({ budgetNanoUsd }, { costBoundNanoUsd });

describe("requests per minute", () => {
  it("lets a whole window's requests through in a burst, then one as each is due", () => {
    const limits = new AccountLimits(UNLIMITED);
    const taken = Array.from({ length: 7 }, () => limits.reserve(request({ requestsPerMinute: 6 }), 0));
    expect(taken.map(({ kind }) => kind)).toEqual([...Array.from({ length: 6 }, () => "granted"), "refused"]);
    expect(taken[6]).toMatchObject({
      code: "rate_limit_exceeded",
      message: "The limit of 6 requests per minute of key k1 is reached.",
      retryAfterSeconds: 10,
      state: { limitRequests: 6, remainingRequests: 0 },
    });
    expect(limits.reserve(request({ requestsPerMinute: 6 }), 9_999).kind).toBe("refused");
    expect(limits.reserve(request({ requestsPerMinute: 6 }), 10_000).kind).toBe("granted");
  });

  it("counts down for the headers and never below zero", () => {
    const limits = new AccountLimits(UNLIMITED);
    const left = Array.from({ length: 9 }, () => limits.reserve(request({ requestsPerMinute: 7 }), 0).state);
    expect(left.map(({ remainingRequests }) => remainingRequests)).toEqual([6, 5, 4, 3, 2, 1, 0, 0, 0]);
  });

  it("uses the default only where no scope has a limit, and lifts it by 0", () => {
    const defaults = { ...UNLIMITED, requestsPerMinute: 1 };
    const byDefault = new AccountLimits(defaults);
    expect(byDefault.reserve(request({}), 0).kind).toBe("granted");
    expect(byDefault.reserve(request({}), 0).kind).toBe("refused");
    const lifted = new AccountLimits(defaults);
    expect(lifted.reserve(request({ requestsPerMinute: 0 }), 0)).toMatchObject({ state: { limitRequests: null } });
    expect(lifted.reserve(request({ requestsPerMinute: 0 }), 0).kind).toBe("granted");
    const ofDefaults = new AccountLimits(defaults);
    const ofProject = {
      scopes: [
        { id: "key:k1", limits: NONE },
        { id: "project:p1", limits: { ...NONE, requestsPerMinute: 2 } },
      ],
    };
    expect(ofDefaults.reserve(request({}, ofProject), 0)).toMatchObject({
      kind: "granted",
      state: { limitRequests: 2 },
    });
    expect(ofDefaults.reserve(request({}, ofProject), 0).kind).toBe("granted");
    expect(ofDefaults.reserve(request({}, ofProject), 0).kind).toBe("refused");
  });

  it("takes nothing from the key when its project refuses", () => {
    const limits = new AccountLimits(UNLIMITED);
    expect(limits.reserve(request({}, { scopes: byProject(1) }), 0).kind).toBe("granted");
    expect(limits.reserve(request({}, { scopes: byProject(1) }), 0)).toMatchObject({
      kind: "refused",
      message: "The limit of 1 requests per minute of project p1 is reached.",
      state: { limitRequests: 1, remainingRequests: 0, remainingTokens: 950 },
    });
  });
});

describe("tokens per minute", () => {
  it("refuses streams without a limit after the fourth when four use the minute up", () => {
    const limits = new AccountLimits(UNLIMITED);
    for (let at = 0; at < 4; at += 1)
      settle(limits, limits.reserve(stream(), at * 500), { nowMs: at * 500, tokens: 50 });
    expect(limits.reserve(stream(), 2_000)).toMatchObject({
      kind: "refused",
      message: "The limit of 200 tokens per minute of key k1 is reached.",
    });
  });

  it("refunds what was not used", () => {
    const limits = new AccountLimits(UNLIMITED);
    const decision = limits.reserve(request({ tokensPerMinute: 100 }, { outputTokensLimit: 80 }), 0);
    expect(decision.state.remainingTokens).toBe(10);
    settle(limits, decision, { nowMs: 0, tokens: 25 });
    expect(limits.reserve(request({ tokensPerMinute: 100 }, { outputTokensLimit: 65 }), 0).state.remainingTokens).toBe(
      0,
    );
  });

  it("turns what was used beyond the reservation into a debt that is waited out, at most a window", () => {
    const limits = new AccountLimits(UNLIMITED);
    settle(limits, limits.reserve(request({ tokensPerMinute: 60 }, { outputTokensLimit: 10 }), 0), {
      nowMs: 0,
      tokens: 90,
    });
    const refused = limits.reserve(request({ tokensPerMinute: 60 }, { outputTokensLimit: 10 }), 0);
    expect(refused).toMatchObject({ kind: "refused", retryAfterSeconds: 50, state: { remainingTokens: 0 } });
    settle(limits, limits.reserve(request({ tokensPerMinute: 60 }, { outputTokensLimit: 10 }), 50_000), {
      nowMs: 50_000,
      tokens: 9_000,
    });
    expect(limits.reserve(request({ tokensPerMinute: 60 }), 50_000)).toMatchObject({ retryAfterSeconds: 60 });
  });

  it("lets a guess larger than the bucket through when that is full", () => {
    const limits = new AccountLimits(UNLIMITED);
    expect(limits.reserve(large(null), 0).kind).toBe("granted");
    expect(limits.reserve(large(null), 0).kind).toBe("refused");
  });
});

describe("budgets", () => {
  it("knows no budget, a budget of nothing and one of something apart", () => {
    const limits = new AccountLimits(UNLIMITED);
    expect(limits.reserve(ask(null), 0).kind).toBe("granted");
    expect(limits.reserve(ask("0", "0"), 0)).toMatchObject({ kind: "refused", code: "insufficient_quota" });
    const other = new AccountLimits(UNLIMITED);
    expect(other.reserve(ask("15"), 0).kind).toBe("granted");
    expect(other.reserve(ask("15"), 0)).toMatchObject({
      kind: "refused",
      message:
        "The budget of 0.000000015 US dollars of key k1 does not cover this request while others, for which a part of it is reserved, are running.",
      retryAfterSeconds: 5,
    });
    expect(other.reserve(ask("20"), 0).kind).toBe("granted");
  });

  it("reserves the bound, charges what it cost, and settles once", () => {
    const limits = new AccountLimits(UNLIMITED);
    const decision = limits.reserve(ask("100", "60"), 0);
    expect(limits.money("key:k1")).toEqual({ spentNanoUsd: 0n, reservedNanoUsd: 60n });
    settle(limits, decision, { nowMs: 0, tokens: 5, costNanoUsd: "7" });
    settle(limits, decision, { nowMs: 0, tokens: 5, costNanoUsd: "7" });
    expect(limits.money("key:k1")).toEqual({ spentNanoUsd: 7n, reservedNanoUsd: 0n });
    expect(limits.money("project:p1")).toEqual({ spentNanoUsd: 7n, reservedNanoUsd: 0n });
  });

  it("releases a reservation that nobody settled, and still charges a settlement that comes late", () => {
    const limits = new AccountLimits({ ...UNLIMITED, reservationTtlMs: 1_000 });
    const decision = limits.reserve(ask("100", "60"), 0);
    expect(limits.reserve(ask("100", "60"), 999).kind).toBe("refused");
    expect(limits.reserve(ask("100", "60"), 1_000).kind).toBe("granted");
    settle(limits, decision, { nowMs: 1_500, tokens: 5, costNanoUsd: "7" });
    expect(limits.money("key:k1")).toEqual({ spentNanoUsd: 7n, reservedNanoUsd: 60n });
  });

  it("goes on where the ledger left off", async () => {
    const limits = new MemoryLimits(new ManualClock(), UNLIMITED);
    const spent = [
      { account: "acme", project: "p1", keyId: "k1", totalNanoUsd: "30", monthNanoUsd: "20", dayNanoUsd: "10" },
      { account: "acme", project: "p1", keyId: "k2", totalNanoUsd: "50", monthNanoUsd: "0", dayNanoUsd: "0" },
    ];
    for (const [account, money] of spendingOf(spent, NOON_MS)) await limits.addSpent(account, money);
    expect(await limits.reserve(request({}, { scopes: ofBudgets("89"), costBoundNanoUsd: "10" }))).toMatchObject({
      kind: "refused",
    });
    expect(await limits.reserve(request({}, { scopes: ofBudgets("90"), costBoundNanoUsd: "10" }))).toMatchObject({
      kind: "granted",
    });
  });
});

describe("budgets of a day and a month", () => {
  const ofDay = (atMs: number, costBoundNanoUsd = "10"): ReserveRequest =>
    request({ budgetDayNanoUsd: "25", budgetMonthNanoUsd: "45" }, { atMs, costBoundNanoUsd });
  const spend = (limits: AccountLimits, atMs: number): void =>
    settle(limits, limits.reserve(ofDay(atMs), 0), { nowMs: 0, tokens: 1, costNanoUsd: "10" });

  it("begin anew at midnight UTC, by the time at which a request was received (C102)", () => {
    const limits = new AccountLimits(UNLIMITED);
    for (const atMs of [MIDNIGHT_MS - 2, MIDNIGHT_MS - 1]) spend(limits, atMs);
    expect(limits.reserve(ofDay(MIDNIGHT_MS - 1), 0)).toMatchObject({
      kind: "refused",
      code: "insufficient_quota",
      message:
        "The budget of 0.000000025 US dollars per day of key k1 does not cover this request; it begins anew at 2026-12-01T00:00:00Z.",
      retryAfterSeconds: 1,
    });
    expect(limits.reserve(ofDay(MIDNIGHT_MS), 0).kind).toBe("granted");
  });

  it("count a request that ends tomorrow for the day it came in", () => {
    const limits = new AccountLimits(UNLIMITED);
    const late = limits.reserve(ofDay(MIDNIGHT_MS - 1, "25"), 0);
    spend(limits, MIDNIGHT_MS);
    settle(limits, late, { nowMs: 1_000, tokens: 1, costNanoUsd: "25" });
    const budgetsAt = (atMs: number) =>
      limits
        .inspect({ scopes: ofDay(0).scopes, atMs }, 1_000)
        .scopes[0]?.budgets.map(({ period, spentNanoUsd, reservedNanoUsd, endsAtMs }) => [
          period,
          spentNanoUsd,
          reservedNanoUsd,
          endsAtMs,
        ]);
    expect(budgetsAt(MIDNIGHT_MS - 1)).toEqual([
      ["day", "25", "0", MIDNIGHT_MS],
      ["month", "25", "0", MIDNIGHT_MS],
    ]);
    expect(budgetsAt(MIDNIGHT_MS)).toEqual([
      ["day", "10", "0", MIDNIGHT_MS + DAY_MS],
      ["month", "10", "0", Date.UTC(2027, 0, 1)],
    ]);
  });

  it("are told with the wait for the one that stands longest", () => {
    const limits = new AccountLimits(UNLIMITED);
    const first = MIDNIGHT_MS + DAY_MS / 2;
    for (const atMs of [first, first, first + DAY_MS, first + DAY_MS]) spend(limits, atMs);
    expect(limits.reserve(ofDay(first + DAY_MS), 0)).toMatchObject({
      message:
        "The budget of 0.000000045 US dollars per month of key k1 does not cover this request; it begins anew at 2027-01-01T00:00:00Z.",
      retryAfterSeconds: 29.5 * 86_400,
    });
  });

  it("go on after a restart with what each period has spent", () => {
    const limits = new AccountLimits(UNLIMITED);
    const spent = {
      account: "acme",
      project: "p1",
      keyId: "k1",
      totalNanoUsd: "99",
      monthNanoUsd: "36",
      dayNanoUsd: "16",
    };
    for (const money of spendingOf([spent], NOON_MS).get("acme") ?? []) limits.addSpent(money);
    const ask16 = (more: Partial<ScopeLimits>) =>
      limits.reserve(request(more, { costBoundNanoUsd: "1" }), 0).kind === "granted";
    expect([ask16({ budgetDayNanoUsd: "16" }), ask16({ budgetDayNanoUsd: "17" })]).toEqual([false, true]);
    expect([ask16({ budgetMonthNanoUsd: "37" }), ask16({ budgetMonthNanoUsd: "38" })]).toEqual([false, true]);
    expect([ask16({ budgetNanoUsd: "101" }), ask16({ budgetNanoUsd: "102" })]).toEqual([false, true]);
    const tomorrow = { ...request({ budgetDayNanoUsd: "1" }, { costBoundNanoUsd: "1" }), atMs: MIDNIGHT_MS };
    expect(limits.reserve(tomorrow, 0).kind).toBe("granted");
  });
});

describe("an account's own limits", () => {
  const scopes: ReserveRequest["scopes"] = [
    { id: "key:k1", limits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 9 } },
    { id: "project:p1", limits: NO_SCOPE_LIMITS },
    { id: "account:acme", limits: { ...NO_SCOPE_LIMITS, requestsPerMinute: 2, budgetDayNanoUsd: "30" } },
  ];

  it("hold for all its keys together, and are what the headers tell when least is left of them", () => {
    const limits = new AccountLimits(UNLIMITED);
    const first = limits.reserve(request({}, { scopes, costBoundNanoUsd: "10" }), 0);
    expect(first.state).toMatchObject({ limitRequests: 2, remainingRequests: 1 });
    const other = scopes.map((scope, at) => (at === 0 ? { ...scope, id: "key:k2" } : scope));
    expect(limits.reserve(request({}, { scopes: other, costBoundNanoUsd: "10" }), 0).kind).toBe("granted");
    expect(limits.reserve(request({}, { scopes: other, costBoundNanoUsd: "10" }), 0)).toMatchObject({
      message: "The limit of 2 requests per minute of account acme is reached.",
    });
    expect(limits.money("account:acme")).toEqual({ spentNanoUsd: 0n, reservedNanoUsd: 20n });
    expect(limits.money("key:k2")).toEqual({ spentNanoUsd: 0n, reservedNanoUsd: 10n });
  });
});

describe("what is reserved where no limit is given", () => {
  const guess = (model: string, key = "k1"): ReserveRequest => ({
    ...request({}, { outputTokensLimit: null, inputTokensEstimate: 10, model }),
    scopes: [{ id: `key:${key}`, limits: { ...NO_SCOPE_LIMITS, tokensPerMinute: 1_000 } }],
  });
  const taken = (limits: AccountLimits, asked: ReserveRequest): number => {
    const before = limits.inspect({ scopes: asked.scopes, atMs: 0 }, 0).state.remainingTokens ?? 0;
    const decision = limits.reserve(asked, 0);
    settle(limits, decision, { nowMs: 0, tokens: 0 });
    return before - (decision.state.remainingTokens ?? 0);
  };

  it("is the running mean of this key's answers of this model", () => {
    const limits = new AccountLimits(UNLIMITED);
    settle(limits, limits.reserve(guess("m"), 0), { nowMs: 0, tokens: 20 });
    settle(limits, limits.reserve(guess("m"), 0), { nowMs: 0, tokens: 30 });
    expect(taken(limits, guess("m"))).toBe(10 + 21);
    expect(taken(limits, guess("other"))).toBe(10 + 128);
    expect(taken(limits, guess("m", "k2"))).toBe(10 + 128);
  });

  it("is never more than the bucket", () => {
    const limits = new AccountLimits(UNLIMITED);
    const asked = request({ tokensPerMinute: 50 }, { outputTokensLimit: null, inputTokensEstimate: 10 });
    expect(taken(limits, asked)).toBe(50);
    expect(limits.inspect({ scopes: asked.scopes, atMs: 0 }, 0).state.remainingTokens).toBe(50);
  });
});

describe("any order of reservations and settlements", () => {
  const step = fc.record({
    waitMs: fc.integer({ min: 0, max: 20_000 }),
    settleAt: fc.option(fc.nat(20), { nil: null }),
    bound: fc.integer({ min: 0, max: 50 }),
    share: fc.double({ min: 0, max: 1, noNaN: true }),
    outputTokensLimit: fc.option(fc.nat(200), { nil: null }),
    totalTokens: fc.nat(400),
  });

  it("never goes over a budget or below zero, refunds exactly, and asks to wait for 1 to 60 seconds", () => {
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const budget = 300n;
        const limits = new AccountLimits({ ...UNLIMITED, reservationTtlMs: 10_000_000 });
        const open: { decision: ReserveDecision; bound: number }[] = [];
        let nowMs = 0;
        let spent = 0n;
        for (const { waitMs, settleAt, bound, share, outputTokensLimit, totalTokens } of steps) {
          nowMs += waitMs;
          const held = settleAt === null ? undefined : open.splice(settleAt, 1)[0];
          if (held !== undefined) {
            const cost = BigInt(Math.floor(held.bound * share));
            settle(limits, held.decision, { nowMs, tokens: totalTokens, costNanoUsd: cost.toString() });
            spent += cost;
          }
          const decision = limits.reserve(
            request(
              { requestsPerMinute: 7, tokensPerMinute: 500, budgetNanoUsd: budget.toString() },
              { costBoundNanoUsd: String(bound), outputTokensLimit },
            ),
            nowMs,
          );
          if (decision.kind === "granted") open.push({ decision, bound });
          const waitSeconds =
            decision.kind === "refused" && decision.code === "rate_limit_exceeded" ? decision.retryAfterSeconds : 1;
          expect(Number.isInteger(waitSeconds)).toBe(true);
          expect(waitSeconds).toBeGreaterThanOrEqual(1);
          expect(waitSeconds).toBeLessThanOrEqual(60);
          const money = limits.money("key:k1");
          expect(money.spentNanoUsd).toBe(spent);
          expect(money.reservedNanoUsd).toBe(BigInt(open.reduce((sum, one) => sum + one.bound, 0)));
          expect(money.spentNanoUsd + money.reservedNanoUsd <= budget).toBe(true);
          for (const left of [decision.state.remainingRequests, decision.state.remainingTokens]) {
            expect(left).toBeGreaterThanOrEqual(0);
          }
        }
      }),
      { numRuns: 200 },
    );
  });
});
