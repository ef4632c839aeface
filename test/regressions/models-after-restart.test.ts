// Root cause: the list of models lived in the edge's memory alone, so that after a restart every model was a 404, which
// clients never repeat, until its host reported.
import { mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { afterEach, beforeEach, describe, expect, it } from "vitest";
import { createApp } from "../../edge/app.ts";
import { InProcessFleet } from "../../edge/fleet/fleet.ts";
import { fleetMemoryOf } from "../../edge/node/fleet-memory.file.ts";
import type { PoolDigest } from "../../edge/ports/coordinator.ts";
import { silentLogger } from "../support/dispatch-fakes.ts";
import { fakeEdge, GOOD_KEY } from "../support/edge-deps.ts";
import { errorBodyOf } from "../support/error-body.ts";
import { hostReport } from "../support/fleet-report.ts";
import { ManualClock } from "../support/manual-clock.ts";

describe("after a restart of the edge", () => {
  let folder: string;
  beforeEach(() => (folder = mkdtempSync(path.join(tmpdir(), "steerage-fleet-memory-"))));
  // The memory may still be writing what the last report told.
  afterEach(() => rmSync(folder, { recursive: true, force: true, maxRetries: 20, retryDelay: 20 }));

  async function startEdge() {
    const memory = await fleetMemoryOf(folder, silentLogger);
    const clock = new ManualClock();
    const told: PoolDigest[] = [];
    const fleet = new InProcessFleet({
      clock,
      logger: silentLogger,
      memory,
      coordinator: {
        update(digest) {
          told.push(digest);
          return Promise.resolve();
        },
      },
      settings: {
        edge: "edge-1",
        reportEveryMs: 1_000,
        unreachableAfterMs: 10_000,
        lostAfterMs: 300_000,
        pushEveryMs: 100,
        endpoints: [],
        models: { m: { aliases: ["tell"], description: null, contextLength: null, maxOutput: null } },
      },
    });
    return { fleet, memory, clock, told };
  }

  it("models are known by name and alias, without a ready replica, until their hosts report", async () => {
    const first = await startEdge();
    expect(await first.fleet.resolve("m")).toBeNull();
    await first.fleet.accept(hostReport());
    await first.memory.written();
    expect(statSync(path.join(folder, "fleet.json")).mode & 0o777).toBe(0o600);

    const second = await startEdge();
    expect(await second.fleet.resolve("tell")).toMatchObject({ id: "m", capabilities: ["chat"], readyReplicas: 0 });
    expect(second.told.at(-1)).toMatchObject({ pool: "m", replicas: [{ ready: false, saes: ["sae-1"] }] });
    expect(await second.fleet.hosts()).toEqual([]);
    // A host whose clock was set back is no older for what is only remembered.
    await second.fleet.accept(hostReport({ epoch: 0 }));
    expect(await second.fleet.models()).toMatchObject([{ id: "m", readyReplicas: 1 }]);
  });

  it("a model that its host gave up meanwhile is gone with the first report, and a host that never comes back after lost_after", async () => {
    const first = await startEdge();
    await first.fleet.accept(hostReport());
    await first.fleet.accept(hostReport({ host: "other" }, { model: "o" }));
    await first.memory.written();
    const second = await startEdge();
    await second.fleet.accept(hostReport({ replicas: [] }));
    expect(await second.fleet.models()).toMatchObject([{ id: "o" }]);
    second.clock.advance(300_000);
    expect(await second.fleet.models()).toEqual([]);
  });

  it("an edge that remembers nothing expects hosts for unreachable_after, or until the first reports", async () => {
    const { fleet, clock } = await startEdge();
    clock.advance(9_999);
    expect(await fleet.settling()).toBe(true);
    clock.advance(1);
    expect(await fleet.settling()).toBe(false);
    const other = await startEdge();
    await other.fleet.accept(hostReport({ replicas: [] }));
    expect(await other.fleet.settling()).toBe(false);
  });

  it("a model that it may yet hear of is 503 with Retry-After meanwhile, and 404 afterwards", async () => {
    const { deps, state } = fakeEdge();
    state.models = [];
    const ask = () =>
      createApp(deps).request("/v1/chat/completions", {
        method: "POST",
        body: JSON.stringify({ model: "new", messages: [] }),
        headers: { "content-type": "application/json", authorization: `Bearer ${GOOD_KEY}` },
      });
    state.settling = true;
    const early = await ask();
    expect([early.status, early.headers.get("retry-after")]).toEqual([503, "2"]);
    expect((await errorBodyOf(early)).code).toBe("no_replica_available");
    state.settling = false;
    expect((await ask()).status).toBe(404);
  });

  it("a damaged memory is as good as none", async () => {
    writeFileSync(path.join(folder, "fleet.json"), '[{"host":');
    const { fleet, memory } = await startEdge();
    expect(await fleet.models()).toEqual([]);
    await fleet.accept(hostReport());
    await memory.written();
    expect((await fleetMemoryOf(folder, silentLogger)).known).toMatchObject([{ host: "gpu" }]);
  });
});
