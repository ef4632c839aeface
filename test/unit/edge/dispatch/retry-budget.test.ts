import { describe, expect, it } from "vitest";
import { RetryBudgets } from "../../../../edge/dispatch/retry-budget.ts";

const takenOf = (budgets: RetryBudgets, pool: string): number => {
  let taken = 0;
  for (; budgets.allows(pool); taken++) budgets.spend(pool);
  return taken;
};

describe("the retry budget", () => {
  it("allows a burst of ten, then a tenth of the requests, each pool apart", () => {
    const budgets = new RetryBudgets();
    expect(takenOf(budgets, "a")).toBe(10);
    for (let made = 0; made < 30; made++) budgets.requestStarted("a");
    expect(takenOf(budgets, "a")).toBe(3);
    expect(takenOf(budgets, "b")).toBe(10);
  });

  it("saves up no more than its burst", () => {
    const budgets = new RetryBudgets();
    for (let made = 0; made < 1_000; made++) budgets.requestStarted("a");
    expect(takenOf(budgets, "a")).toBe(10);
  });

  it("keeps no endless list of pools", () => {
    const budgets = new RetryBudgets();
    expect(takenOf(budgets, "a")).toBe(10);
    for (let made = 0; made < 2_000; made++) budgets.requestStarted(`pool-${made}`);
    expect(takenOf(budgets, "a")).toBe(10);
  });
});
