import { beforeEach, describe, expect, it } from "vitest";
import { Membership, NameTaken } from "../../../../edge/membership/membership.ts";
import type { EdgeMember, EdgeStore } from "../../../../edge/ports/edge-store.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { keptLogger } from "../../../support/silent-logger.ts";

const TTL_MS = 15_000;
const identity = { name: "a", home: "home-a", run: "run-a" };
const me: EdgeMember = { name: "a", run: "run-a", leaseLeftMs: TTL_MS, sharing: false };
const other: EdgeMember = { name: "b", run: "run-b", leaseLeftMs: TTL_MS, sharing: true };

/** A database whose answers the test sets. */
function scriptedStore() {
  const state = { away: false, mine: true, members: [me], placement: 1 as number | null, taken: false };
  const calls: string[] = [];
  const answer = <T>(call: string, value: () => T): Promise<T> => {
    calls.push(call);
    return state.away ? Promise.reject(new Error("away")) : Promise.resolve(value());
  };
  const store: EdgeStore = {
    joinEdge: () =>
      answer("join", () =>
        state.taken ? { kind: "taken", freeInMs: 4_000 } : { kind: "joined", members: state.members },
      ),
    edges: () => answer("edges", () => state.members),
    renewEdge: () => answer("renew", () => ({ mine: state.mine, members: state.members, placement: state.placement })),
    leaveEdge: () => answer("leave", () => undefined),
  };
  return { store, state, calls };
}

describe("an edge among those of its database", () => {
  let clock: ManualClock;
  let database: ReturnType<typeof scriptedStore>;
  let membership: Membership;
  let lines: string[];
  beforeEach(() => {
    clock = new ManualClock();
    database = scriptedStore();
    const kept = keptLogger();
    lines = kept.lines;
    membership = new Membership({ clock, logger: kept.logger, store: database.store, identity, leaseTtlMs: TTL_MS });
  });

  const pass = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 1_000) {
      clock.advance(Math.min(1_000, ms - passed));
      await membership.look();
    }
  };

  it("does not start under a name that another has, and says how long", async () => {
    database.state.taken = true;
    await expect(membership.join()).rejects.toThrow(NameTaken);
    expect(clock.pendingTimers).toBe(0);
  });

  it("looks each second and writes only when a third of its lease is over", async () => {
    await membership.join();
    database.calls.length = 0;
    await pass(4_000);
    expect(database.calls.length).toBeGreaterThan(0);
    expect(new Set(database.calls)).toEqual(new Set(["edges"]));
    await pass(1_000);
    expect(database.calls).toContain("renew");
  });

  it("sees another come, and take the placement only after it is gone", async () => {
    database.state.placement = null;
    await membership.join();
    expect(membership.liveOthers).toEqual([]);
    database.state.members = [me, other];
    await pass(1_000);
    expect(membership.liveOthers).toEqual([other]);
    expect(membership.placement).toBeNull();
    database.state.members = [me, { ...other, leaseLeftMs: 0 }];
    await pass(1_000);
    expect(membership.liveOthers).toEqual([]);
    // Somebody's lease ended, so its own is renewed at once: the placement may be free.
    database.state.placement = 2;
    await pass(1_000);
    expect(membership.placement).toBe(2);
    expect(lines.join("\n")).toContain("lease of another edge has ended");
  });

  it("places no models any more when its own lease may have ended, and does again after, telling of it", async () => {
    let returns = 0;
    membership.whenReturned(() => {
      returns += 1;
    });
    await membership.join();
    expect(membership.placement).toBe(1);
    database.state.away = true;
    await pass(TTL_MS);
    expect(membership.holdsLease).toBe(false);
    expect(membership.placement).toBeNull();
    expect(returns).toBe(0);
    database.state.away = false;
    await pass(1_000);
    expect(membership.placement).toBe(1);
    await pass(10_000);
    expect(returns).toBe(1);
  });

  it("says so once when its name was taken by another process, and does not free that one's name", async () => {
    await membership.join();
    database.state.mine = false;
    await pass(20_000);
    expect(membership.holdsLease).toBe(false);
    expect(lines.filter((line) => line.includes("has taken this edge's name"))).toHaveLength(1);
    await membership.leave();
    expect(database.calls).not.toContain("leave");
  });

  it("frees its name at its end, and ends without the database too", async () => {
    await membership.join();
    await membership.leave();
    expect(database.calls.at(-1)).toBe("leave");
    expect(membership.placement).toBeNull();
    expect(clock.pendingTimers).toBe(0);

    const alone = new Membership({
      clock,
      logger: keptLogger().logger,
      store: database.store,
      identity,
      leaseTtlMs: TTL_MS,
    });
    await alone.join();
    database.state.away = true;
    await expect(alone.leave()).resolves.toBeUndefined();
  });
});
