import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { BudgetAsk, RateAsk, SliceAnswer } from "../../edge/ports/slice-store.ts";
import type { Store } from "../../edge/store/store.libsql.ts";
import { batchOf, endedRequest, opened, START_MS, usageRow } from "../support/usage-rows.ts";
import type { StoreCase } from "./store.contract.ts";

const TTL_MS = 60_000;
const edge = (name: string, run = `run of ${name}`) => ({ name, home: `home of ${name}`, run });

const rate = (more: Partial<RateAsk> = {}): RateAsk => ({
  scope: "key:k1",
  resource: "requests",
  perMinute: 10,
  back: 0,
  need: 0,
  ahead: false,
  left: null,
  ...more,
});

const budget = (more: Partial<BudgetAsk> = {}): BudgetAsk => ({
  scope: "key:k1",
  period: "total",
  path: ["acme", "p1", "k1"],
  startMs: 0,
  endMs: null,
  limitNanoUsd: "100000",
  committedNanoUsd: "0",
  keepNanoUsd: "0",
  needNanoUsd: "0",
  ahead: false,
  ...more,
});

/** What every adapter of the store must do for limits that edges share. */
export function sliceStoreContract({ name, create }: StoreCase): void {
  describe(`slices of limits (${name})`, () => {
    let store: Store;
    let dispose: () => Promise<void>;
    beforeEach(async () => {
      ({ store, dispose } = await create());
      await store.joinEdge(edge("a"), TTL_MS);
      await store.joinEdge(edge("b"), TTL_MS);
    });
    afterEach(() => dispose());

    const take = (who: string, rates: RateAsk[], budgets: BudgetAsk[] = []): Promise<SliceAnswer> =>
      store.takeSlices({ edge: edge(who), rates, budgets });
    const granted = async (who: string, ...rates: RateAsk[]): Promise<number[]> => {
      const answer = await take(who, rates);
      return answer.kind === "granted" ? answer.rates.map((grant) => grant.granted) : [];
    };
    const held = async (who: string, ...budgets: BudgetAsk[]): Promise<string[]> => {
      const answer = await take(who, [], budgets);
      return answer.kind === "granted" ? answer.budgets.map((grant) => grant.heldNanoUsd) : [];
    };
    const bothShare = async (): Promise<void> => {
      await take("a", []);
      await take("b", []);
    };

    it("gives nothing before every live edge has told what it uses", async () => {
      expect(await take("b", [rate({ need: 1 })], [budget({ needNanoUsd: "10" })])).toMatchObject({
        waitsFor: "a",
        rates: [{ granted: 0 }],
        budgets: [{ heldNanoUsd: "0" }],
      });
      // What that one used alone is written down, and counts from here on.
      const told = await take("a", [rate({ left: 4 })], [budget({ committedNanoUsd: "700", keepNanoUsd: "700" })]);
      expect(told).toMatchObject({ waitsFor: null, edges: 2, budgets: [{ heldNanoUsd: "700" }] });
      const answer = await take("b", [rate({ need: 9 })], [budget({ needNanoUsd: "99400" })]);
      expect(answer).toMatchObject({ waitsFor: null, budgets: [{ heldNanoUsd: "99300", othersNanoUsd: "700" }] });
      const [given = 0] = answer.kind === "granted" ? answer.rates.map((grant) => grant.granted) : [];
      expect(given).toBeGreaterThanOrEqual(4);
      expect(given).toBeLessThan(5);
    });

    it("gives a rate once, takes back and remembers a debt", async () => {
      await bothShare();
      expect(await granted("a", rate({ need: 8 }))).toEqual([8]);
      const [rest = 0] = await granted("b", rate({ need: 8 }));
      expect(rest).toBeGreaterThanOrEqual(2);
      expect(rest).toBeLessThan(3);
      const [back = 0] = await granted("b", rate({ need: 8, back: 8 }));
      expect(back).toBe(8);
      await granted("a", rate({ back: -20 }));
      expect(await granted("b", rate({ need: 1 }))).toEqual([0]);
      expect(await granted("b", rate({ scope: "key:other", need: 1 }))).toEqual([1]);
    });

    it("gives a budget once, what is spent by whomever included, by key, project and account", async () => {
      await bothShare();
      await store.record(batchOf({ usage: [usageRow("r1", { costNanoUsd: "20640" })] }));
      const scopes = [
        budget(),
        budget({ scope: "project:p1", path: ["acme", "p1"] }),
        budget({ scope: "account:acme", path: ["acme"] }),
        budget({ scope: "key:other", path: ["acme", "p1", "other"] }),
        budget({ period: "day", startMs: START_MS + 86_400_000, endMs: START_MS + 2 * 86_400_000 }),
      ].map((ask) => ({ ...ask, needNanoUsd: "100000" }));
      expect(await held("a", ...scopes)).toEqual(["79360", "79360", "79360", "100000", "100000"]);
      expect(await held("b", budget({ needNanoUsd: "1" }))).toEqual(["0"]);
      expect(await held("a", budget({ keepNanoUsd: "10" }))).toEqual(["10"]);
      expect(await held("b", budget({ needNanoUsd: "79351" }))).toEqual(["79350"]);
    });

    it("gives one of two askers at once what is there for one only", async () => {
      await bothShare();
      const both = await Promise.all(["a", "b"].map((who) => held(who, budget({ needNanoUsd: "60000" }))));
      expect(both.flat().toSorted()).toEqual(["40000", "60000"]);
    });

    it("keeps what a dead edge holds, frees what another settled for it, and all when it leaves", async () => {
      await bothShare();
      expect(await held("a", budget({ committedNanoUsd: "50000", needNanoUsd: "60000" }))).toEqual(["60000"]);
      const attempts = [{ requestId: "r1", attempt: 1, backend: "gpu-1", replica: "r1", epoch: 7 }];
      await store.noteOpenRequests("a", [{ opened: opened("r1"), attempts, reservedNanoUsd: "50000" }], []);
      await store.renewEdge(edge("a"), { ttlMs: 0, sharing: true });
      expect(await held("b", budget({ needNanoUsd: "100000" }))).toEqual(["40000"]);
      const report = { host: "gpu-1", ended: [endedRequest("r1", { edge: "a" })], counters: [], atMs: START_MS };
      expect(await store.adopt(report)).toHaveLength(1);
      // 20,640 are spent and 10,000 still held.
      expect(await held("b", budget({ needNanoUsd: "100000" }))).toEqual(["69360"]);
      await store.joinEdge(edge("a", "second run"), TTL_MS);
      expect(await held("b", budget({ keepNanoUsd: "0", needNanoUsd: "100000" }))).toEqual(["69360"]);
      await store.dropFormerSlices("a");
      await store.takeSlices({ edge: edge("a", "second run"), rates: [], budgets: [] });
      expect(await held("b", budget({ needNanoUsd: "100000" }))).toEqual(["79360"]);
      await store.leaveEdge(edge("b"));
      const answer = await store.takeSlices({
        edge: edge("a", "second run"),
        rates: [],
        budgets: [budget({ needNanoUsd: "1" })],
      });
      expect(answer).toMatchObject({ edges: 1, budgets: [{ othersNanoUsd: "0" }] });
    });

    it("gives nothing to a process whose name another has", async () => {
      await store.joinEdge(edge("a", "second run"), TTL_MS);
      expect(await take("a", [rate({ need: 1 })])).toEqual({ kind: "lost" });
    });
  });
}
