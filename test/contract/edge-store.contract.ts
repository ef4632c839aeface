import { afterEach, beforeEach, describe, expect, it } from "vitest";
import type { Store } from "../../edge/store/store.libsql.ts";
import type { EndedRequest } from "../../shared/protocol/report.ts";
import type { OpenRequest } from "../../edge/ports/open-request-store.ts";
import { differencesOf, proofSides } from "../../edge/usage/proof.ts";
import { until } from "../support/stack.ts";
import { attemptRow, batchOf, endedRequest, HOUR_MS, opened, START_MS, usageRow } from "../support/usage-rows.ts";

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

    describe("requests that an edge left open when it died", () => {
      const note = (requestId: string, more: Partial<OpenRequest> = {}): OpenRequest => ({
        opened: opened(requestId),
        attempts: [{ requestId, attempt: 1, backend: "gpu-1", replica: "r1", epoch: 7 }],
        reservedNanoUsd: "0",
        ...more,
      });
      const told = (...ended: EndedRequest[]) => ({
        host: "gpu-1",
        ended,
        counters: [
          {
            edge: "a",
            epoch: 7,
            hour: START_MS,
            requests: ended.length,
            computed_prompt: 6 * ended.length,
            cached_prompt: 4 * ended.length,
            computed_completion: 20 * ended.length,
          },
        ],
        atMs: START_MS + 9_000,
      });
      const ended = (requestId: string, more: Partial<EndedRequest> = {}) =>
        endedRequest(requestId, { edge: "a", outcome: "cancelled", ...more });
      const rowOf = async (requestId: string) => (await store.requests([requestId])).usageRows[0];
      const differences = async () => {
        const range = { fromMs: null, toMs: null, settledUpToMs: START_MS + 100 * HOUR_MS };
        const snapshot = await store.proofSnapshot({ ...range, requestIds: [] });
        return differencesOf(proofSides(snapshot, batchOf({}), range));
      };
      /** Dead at once. */
      const die = () => store.joinEdge(edge("a"), 0);

      it("are settled by what a machine tells another, once, and both sums of the proof hold", async () => {
        await die();
        await store.noteOpenRequests("a", [note("r1"), note("r2")], []);
        expect(await store.openRequestIds("a")).toHaveLength(2);
        const report = told(ended("r1"), ended("r2", { outcome: "failed" }));
        expect(await store.adopt(report)).toHaveLength(2);
        expect(await rowOf("r1")).toMatchObject({
          outcome: "cancelled",
          exactness: "exact",
          completionTokens: 20,
          costNanoUsd: "20640",
          settledAtMs: START_MS + 9_000,
        });
        expect(await rowOf("r2")).toMatchObject({ outcome: "failed", completionTokens: 20 });
        expect(await store.openRequestIds("a")).toEqual([]);
        const before = await store.requests(["r1", "r2"]);
        // The acknowledgement was lost: the host tells it again.
        expect(await store.adopt({ ...report, atMs: START_MS + 20_000 })).toHaveLength(2);
        expect(await store.requests(["r1", "r2"])).toEqual(before);
        expect(await differences()).toEqual([]);
      });

      it("are nobody else's while that edge lives, or has come back", async () => {
        await store.joinEdge(edge("a"), TTL_MS);
        await store.noteOpenRequests("a", [note("r1")], []);
        expect(await store.adopt(told(ended("r1")))).toEqual([]);
        expect(await store.settleAbandoned(0, START_MS)).toBe(0);
        expect(await rowOf("r1")).toBeUndefined();
      });

      it("that only its journal knows are counted, billed to nobody, and kept for its return", async () => {
        await die();
        expect(await store.adopt(told(ended("r1")))).toEqual([]);
        expect(await rowOf("r1")).toBeUndefined();
        expect(await differences()).toEqual([]);
        // It is back, and its journal knows what the request was.
        await store.record(batchOf({ usage: [usageRow("r1")], attempts: [attemptRow("r1")] }));
        expect(await differences()).toEqual([]);
        await die();
        expect(await store.adopt(told(ended("r1")))).toEqual([{ request_id: "r1", attempt: 1 }]);
      });

      it("are not touched by a host that they were not on", async () => {
        await die();
        await store.noteOpenRequests("a", [note("r1")], []);
        expect(await store.adopt({ ...told(ended("r1")), host: "gpu-2", counters: [] })).toEqual([]);
        expect(await store.openRequestIds("a")).toEqual(["r1"]);
      });

      it("end without a machine's word after a while, at once where none can come", async () => {
        await die();
        const atEndpoint = [{ requestId: "r2", attempt: 1, backend: "ep", replica: "ep", epoch: null }];
        await store.noteOpenRequests("a", [note("r1"), note("r2", { attempts: atEndpoint })], []);
        expect(await store.settleAbandoned(TTL_MS, START_MS + 9_000)).toBe(1);
        expect(await rowOf("r2")).toMatchObject({ outcome: "failed", exactness: "estimated", costNanoUsd: "0" });
        expect(await rowOf("r1")).toBeUndefined();
        expect(await store.settleAbandoned(0, START_MS + 9_000)).toBe(1);
        expect(await rowOf("r1")).toMatchObject({ outcome: "failed", costNanoUsd: "0" });
        // The machine tells after all: what it computed is billed.
        expect(await store.adopt(told(ended("r1")))).toHaveLength(1);
        expect(await rowOf("r1")).toMatchObject({ exactness: "exact", costNanoUsd: "20640" });
      });

      it("are replaced and taken away by their own edge, whose name stays known while some are left", async () => {
        await store.joinEdge(edge("a"), TTL_MS);
        await store.noteOpenRequests("a", [note("r1"), note("r2")], []);
        await store.noteOpenRequests("b", [], ["r1"]);
        await store.noteOpenRequests("a", [note("r1", { reservedNanoUsd: "5" })], ["r2"]);
        expect(await store.openRequestIds("a")).toEqual(["r1"]);
        await store.leaveEdge(edge("a"));
        expect((await store.edges()).map(({ name, leaseLeftMs }) => [name, leaseLeftMs > 0])).toEqual([["a", false]]);
      });
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
