// Root cause: a connection that was refused ended the request with 502, and the fleet never learned of it, so that every
// later request, and /ready, went on counting on a host that was gone.
import { describe, expect, it } from "vitest";
import { InProcessFleet } from "../../edge/fleet/fleet.ts";
import type { Coordinator } from "../../edge/ports/coordinator.ts";
import type { Fleet } from "../../edge/ports/fleet.ts";
import { errorOf, manualBench } from "../support/dispatch-bench.ts";
import { silentLogger } from "../support/dispatch-fakes.ts";
import { hostReport } from "../support/fleet-report.ts";
import { until } from "../support/stack.ts";

async function bench() {
  const site: { fleet: Fleet | null; coordinator: Coordinator | null } = { fleet: null, coordinator: null };
  const made = await manualBench({
    replicas: [],
    fleet: { unreachable: (host, epoch) => site.fleet?.unreachable(host, epoch) ?? Promise.resolve(false) },
  });
  const fleet = new InProcessFleet({
    clock: made.clock,
    logger: silentLogger,
    coordinator: made.coordinator,
    settings: {
      edge: "edge-1",
      reportEveryMs: 1_000,
      unreachableAfterMs: 10_000,
      lostAfterMs: 300_000,
      pushEveryMs: 100,
      endpoints: [],
      models: {},
    },
  });
  site.fleet = fleet;
  await fleet.accept(hostReport());
  const ready = async () => (await fleet.models()).map(({ readyReplicas }) => readyReplicas);
  const waiting = () =>
    until("the request waits", async () => {
      const [pool] = await made.coordinator.stats();
      return pool?.queueDepthByBand["default"] === 1;
    });
  return { ...made, fleet, ready, waiting };
}

describe("a host that was killed", () => {
  it("makes requests wait for a machine, and then answers 503 with a computed Retry-After, as a shed row", async () => {
    const { ask, exchange, upstream, clock, ready, waiting, ledger, inFlight } = await bench();
    const { writer, done } = ask();
    (await exchange(0)).fail("unreachable");
    await waiting();
    expect(await ready()).toEqual([0]);
    clock.advance(10_000);
    await done;
    expect(writer.status).toBe(503);
    expect(errorOf(writer).code).toBe("no_replica_available");
    expect(Number(writer.headers["retry-after"])).toBeGreaterThanOrEqual(1);
    expect(upstream.exchanges).toHaveLength(1);
    expect(ledger.settled).toMatchObject([{ outcome: "shed", attempts: [{ counts: { promptTokens: 0 } }] }]);
    expect(await inFlight()).toBe(0);
  });

  it("serves what waits for it as soon as it reports again", async () => {
    const { ask, exchange, fleet, waiting } = await bench();
    const { writer, done } = ask();
    (await exchange(0)).fail("dial_timeout");
    await waiting();
    await fleet.accept(hostReport({ epoch: 2 }));
    (await exchange(1)).headers(200, { "content-type": "application/json" }).text("{}").end();
    await done;
    expect(writer.status).toBe(200);
  });

  it("counts as ready no more once it was silent for unreachable_after, and is tried all the same", async () => {
    const { ask, exchange, clock, ready } = await bench();
    clock.advance(9_999);
    expect(await ready()).toEqual([1]);
    clock.advance(1);
    expect(await ready()).toEqual([0]);
    const { writer, done } = ask();
    (await exchange(0)).headers(200, { "content-type": "application/json" }).text("{}").end();
    await done;
    expect(writer.status).toBe(200);
  });

  it("is tried again after a while though it sends no reports", async () => {
    const { fleet, clock, ready, ask, exchange } = await bench();
    expect(await fleet.unreachable("gpu", 1)).toBe(true);
    expect(await fleet.unreachable("gpu", 7)).toBe(false);
    expect(await ready()).toEqual([0]);
    clock.advance(30_000);
    const { done } = ask();
    (await exchange(0)).headers(200, { "content-type": "application/json" }).text("{}").end();
    await done;
  });
});
