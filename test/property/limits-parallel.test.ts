import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { MemoryLimits } from "../../edge/limits/limits.memory.ts";
import { NO_SCOPE_LIMITS, type LimitedScope, type ReserveDecision, type ScopeLimits } from "../../edge/ports/limits.ts";
import { ManualClock } from "../support/manual-clock.ts";

const CALLS = 200;
const UNLIMITED = { requestsPerMinute: 0, tokensPerMinute: 0, reservationTtlMs: 3_600_000 };

interface Call {
  readonly key: number;
  readonly project: number;
  readonly input: number;
  readonly limit: number;
  /** Of its bounds, what it uses really. */
  readonly share: number;
  readonly waitMs: number;
}

const call: fc.Arbitrary<Call> = fc.record({
  key: fc.nat(2),
  project: fc.nat(1),
  input: fc.integer({ min: 1, max: 50 }),
  limit: fc.integer({ min: 1, max: 200 }),
  share: fc.double({ min: 0, max: 1, noNaN: true }),
  waitMs: fc.integer({ min: 0, max: 3_000 }),
});
const amount = fc.option(fc.integer({ min: 0, max: 5_000 }).map(String), { nil: null });
const limitsOf: fc.Arbitrary<ScopeLimits> = fc.record({
  requestsPerMinute: fc.option(fc.integer({ min: 1, max: 40 }), { nil: null }),
  tokensPerMinute: fc.option(fc.integer({ min: 50, max: 5_000 }), { nil: null }),
  budgetNanoUsd: amount,
  budgetDayNanoUsd: amount,
  budgetMonthNanoUsd: amount,
});
const world = fc.record({
  calls: fc.array(call, { minLength: CALLS, maxLength: CALLS }),
  keys: fc.array(limitsOf, { minLength: 3, maxLength: 3 }),
  projects: fc.array(limitsOf, { minLength: 2, maxLength: 2 }),
  account: limitsOf,
  /** Just before a midnight that also ends a month, or in the middle of a day. */
  startMs: fc.constantFrom(Date.UTC(2026, 10, 30, 23, 58), Date.UTC(2026, 10, 15, 12)),
});

/** What one scope let through, to be compared with its limits. */
interface Passed {
  readonly limits: ScopeLimits;
  requests: number[];
  tokens: { atMs: number; tokens: number }[];
  spent: Map<string, bigint>;
  /** Of those that came together, before any had ended. */
  tokensAtOnce: number;
}

const periodsOf = (atMs: number): readonly string[] => {
  const text = new Date(atMs).toISOString();
  return ["all", text.slice(0, 7), text.slice(0, 10)];
};

/** The most that a window of a minute may hold: what was saved up, and what comes in during it. */
const mostInAMinute = (perMinute: number): number => 2 * perMinute;

/** Everything by which a scope passed its limits, in words. */
function overspentOf([id, { limits: own, requests, tokens, spent, tokensAtOnce }]: [string, Passed]): string[] {
  const found: string[] = [];
  const budgets = { all: own.budgetNanoUsd, month: own.budgetMonthNanoUsd, day: own.budgetDayNanoUsd };
  for (const [period, nanoUsd] of spent) {
    const limit = budgets[period === "all" ? "all" : period.length === 7 ? "month" : "day"];
    if (limit !== null && nanoUsd > BigInt(limit)) found.push(`${id} spent ${nanoUsd} of ${limit} in ${period}`);
  }
  if (tokensAtOnce > (own.tokensPerMinute ?? Infinity)) found.push(`${id} let ${tokensAtOnce} tokens in at once`);
  const mostRequests = own.requestsPerMinute ?? Infinity;
  for (const fromMs of requests) {
    const atOnce = requests.filter((atMs) => atMs === fromMs).length;
    const within = requests.filter((atMs) => atMs >= fromMs && atMs < fromMs + 60_000).length;
    if (atOnce > mostRequests || within > mostInAMinute(mostRequests)) found.push(`${id} had ${within} requests`);
  }
  const mostTokens = mostInAMinute(own.tokensPerMinute ?? Infinity) + Math.max(0, ...tokens.map((one) => one.tokens));
  for (const { atMs: fromMs } of tokens) {
    const within = tokens.filter(({ atMs }) => atMs >= fromMs && atMs < fromMs + 60_000);
    const sum = within.reduce((total, one) => total + one.tokens, 0);
    if (sum > mostTokens) found.push(`${id} used ${sum} tokens`);
  }
  return found;
}

describe(`${CALLS} parallel calls of three keys of two projects of one account`, () => {
  it("never spend a request or a nano-dollar too much, nor tokens of more than one request", async () => {
    await fc.assert(
      fc.asyncProperty(world, async ({ calls, keys, projects, account, startMs }) => {
        const clock = new ManualClock(startMs);
        const limits = new MemoryLimits(clock, UNLIMITED);
        const passed = new Map<string, Passed>();
        const scope = (id: string, own: ScopeLimits | undefined): LimitedScope => ({
          id,
          limits: own ?? NO_SCOPE_LIMITS,
        });
        const running: { call: Call; decision: ReserveDecision; atMs: number; ids: string[] }[] = [];
        const end = async (): Promise<void> => {
          const [first] = running.splice(Math.floor(running.length / 2), 1);
          if (first === undefined || first.decision.kind !== "granted") return;
          const used = Math.floor(first.call.limit * first.call.share);
          const cost = BigInt(first.call.input + used);
          for (const id of first.ids) {
            const seen = passed.get(id);
            seen?.tokens.push({ atMs: first.atMs, tokens: first.call.input + used });
            for (const period of periodsOf(first.atMs)) seen?.spent.set(period, (seen.spent.get(period) ?? 0n) + cost);
          }
          const { reservationId } = first.decision;
          const totals = { totalTokens: first.call.input + used, completionTokens: used, costNanoUsd: cost.toString() };
          await limits.settle({ account: "acme", reservationId, ...totals });
        };
        // All come before any has ended; then they end in another order, while the refused ones come again.
        for (const [at, one] of [...calls, ...calls].entries()) {
          if (at >= CALLS) {
            clock.advance(one.waitMs);
            await end();
          }
          const atMs = clock.nowMs();
          const scopes = [
            scope(`key:${one.key}`, keys[one.key]),
            scope(`project:${one.project}`, projects[one.project]),
            scope("account:acme", account),
          ];
          const decision = await limits.reserve({
            account: "acme",
            requestId: `r${at}`,
            atMs,
            model: "m",
            scopes,
            inputTokensEstimate: one.input,
            outputTokensLimit: one.limit,
            costBoundNanoUsd: String(one.input + one.limit),
          });
          if (decision.kind === "refused") continue;
          const ids = scopes.map(({ id }) => id);
          for (const { id, limits: own } of scopes) {
            const seen = passed.get(id) ?? {
              limits: own,
              requests: [],
              tokens: [],
              spent: new Map<string, bigint>(),
              tokensAtOnce: 0,
            };
            passed.set(id, seen);
            seen.requests.push(clock.monotonicMs());
            if (at < CALLS) seen.tokensAtOnce += one.input + one.limit;
          }
          running.push({ call: one, decision, atMs, ids });
        }
        while (running.length > 0) await end();
        expect([...passed].flatMap(overspentOf)).toEqual([]);
        const left = await limits.inspect({
          account: "acme",
          scopes: [scope("account:acme", { ...account, budgetNanoUsd: "1" })],
          atMs: clock.nowMs(),
        });
        for (const budget of left.scopes[0]?.budgets ?? []) expect(budget.reservedNanoUsd).toBe("0");
      }),
      { numRuns: 60 },
    );
  });
});
