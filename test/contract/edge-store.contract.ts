import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Store } from "../../edge/store/store.libsql.ts";
import { until } from "../support/stack.ts";

const TTL_MS = 60_000;
const edge = (name: string, more: Partial<{ home: string; run: string }> = {}) => ({
  name,
  home: `home of ${name}`,
  run: `run of ${name}`,
  ...more,
});

/** What every adapter of the store must do for edges that share its database. */
export function edgeStoreContract(adapter: {
  readonly name: string;
  readonly create: () => Promise<{ store: Store; dispose: () => Promise<void> }>;
}): void {
  describe(`edges on one database (${adapter.name})`, () => {
    let store: Store;
    let dispose: () => Promise<void>;
    beforeEach(async () => {
      ({ store, dispose } = await adapter.create());
    });
    afterEach(() => dispose());

    it("gives a name to one live edge only, and at once to the one that starts again", async () => {
      const joined = await store.joinEdge(edge("a"), TTL_MS);
      expect(joined).toMatchObject({ kind: "joined", members: [{ name: "a", run: "run of a", sharing: false }] });
      const taken = await store.joinEdge(edge("a", { home: "elsewhere" }), TTL_MS);
      expect(taken.kind === "taken" && taken.freeInMs > 0 && taken.freeInMs <= TTL_MS).toBe(true);
      expect(await store.joinEdge(edge("a", { run: "second" }), TTL_MS)).toMatchObject({ kind: "joined" });
      // The former process hears of it.
      expect(await store.renewEdge(edge("a"), { ttlMs: TTL_MS, sharing: false })).toMatchObject({ mine: false });
      expect((await store.edges()).map(({ run }) => run)).toEqual(["second"]);
    });

    it("shares from the beginning where another edge is", async () => {
      await store.joinEdge(edge("a"), TTL_MS);
      const joined = await store.joinEdge(edge("b"), TTL_MS);
      const members = joined.kind === "joined" ? joined.members : [];
      expect(members.map(({ name, sharing }) => [name, sharing])).toEqual([
        ["a", false],
        ["b", true],
      ]);
      await store.renewEdge(edge("a"), { ttlMs: TTL_MS, sharing: true });
      expect((await store.edges()).map(({ sharing }) => sharing)).toEqual([true, true]);
    });

    it("lets one edge place models, until it leaves or its lease ends", async () => {
      const term = { ttlMs: TTL_MS, sharing: true };
      await store.joinEdge(edge("a"), TTL_MS);
      await store.joinEdge(edge("b"), TTL_MS);
      expect((await store.renewEdge(edge("a"), term)).placement).toBe(1);
      expect((await store.renewEdge(edge("b"), term)).placement).toBeNull();
      expect((await store.renewEdge(edge("a"), term)).placement).toBe(1);
      await store.leaveEdge(edge("a"));
      expect((await store.renewEdge(edge("b"), { ...term, ttlMs: 1 })).placement).toBe(2);
      await store.joinEdge(edge("a"), TTL_MS);
      await until("the lease has ended", async () => (await store.renewEdge(edge("a"), term)).placement === 3);
      expect((await store.edges()).find(({ name }) => name === "b")?.leaseLeftMs).toBeLessThanOrEqual(0);
    });

    it("does not let a former process end the lease of its successor", async () => {
      await store.joinEdge(edge("a", { run: "second" }), TTL_MS);
      await store.leaveEdge(edge("a"));
      expect(await store.edges()).toHaveLength(1);
      await store.leaveEdge(edge("a", { run: "second" }));
      expect(await store.edges()).toEqual([]);
    });
  });
}
