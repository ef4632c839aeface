import { describe, expect, it } from "vitest";
import { RemoteLedger, type LedgerCall, type LedgerKeeper } from "../../../../edge/web/ledger.remote.ts";
import { opened, settledRequest } from "../../../support/usage-rows.ts";

const ID = "req_1";
const attempt = { requestId: ID, attempt: 1, backend: "gpu", replica: "r1", epoch: 1 };

/** Takes calls, but for as many times as it is told to fail. */
class Keeper implements LedgerKeeper {
  readonly taken: LedgerCall["kind"][][] = [];
  failures = 0;

  apply(calls: readonly LedgerCall[]): Promise<void> {
    if (this.failures-- > 0) return Promise.reject(new Error("not here"));
    this.taken.push(calls.map(({ kind }) => kind));
    return Promise.resolve();
  }
}

describe("a ledger that is kept elsewhere", () => {
  it("gets the calls of one turn together and all in their order", async () => {
    const keeper = new Keeper();
    const ledger = new RemoteLedger(keeper, true);
    ledger.open(opened(ID));
    ledger.attemptStarted(attempt);
    await ledger.written();
    ledger.settle(settledRequest(ID));
    await ledger.written();
    expect(keeper.taken).toEqual([["open", "attempt"], ["settle"]]);
  });

  it.each([1, 2, 3])("gets what was lost %s times with the next call, and everything in the end", async (failures) => {
    const keeper = new Keeper();
    const ledger = new RemoteLedger(keeper, true);
    keeper.failures = failures;
    ledger.open(opened(ID));
    ledger.attemptStarted(attempt);
    await new Promise((resolve) => setImmediate(resolve));
    ledger.settle(settledRequest(ID));
    await ledger.written();
    expect(keeper.taken.flat()).toEqual(["open", "attempt", "settle"]);
  });

  it("that stays away is told, and may be tried again", async () => {
    const keeper = new Keeper();
    const ledger = new RemoteLedger(keeper, true);
    keeper.failures = 4;
    ledger.open(opened(ID));
    await expect(ledger.written()).rejects.toThrow("not here");
    await ledger.written();
    expect(keeper.taken).toEqual([["open"]]);
  });

  it("without room lets nothing be opened", () => {
    expect(() => new RemoteLedger(new Keeper(), false).open(opened(ID))).toThrow(
      expect.objectContaining({ code: "usage_journal_full" }),
    );
  });
});
