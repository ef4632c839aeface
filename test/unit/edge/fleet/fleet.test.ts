import { describe, expect, it } from "vitest";
import { originOf } from "../../../../edge/fleet/endpoint-digest.ts";
import { InProcessFleet } from "../../../../edge/fleet/fleet.ts";
import type { FleetSettings, StaticEndpoint } from "../../../../edge/fleet/settings.ts";
import type { PoolDigest } from "../../../../edge/ports/coordinator.ts";
import type { Report, ReplicaReport } from "../../../../shared/protocol/report.ts";
import { silentLogger } from "../../../support/dispatch-fakes.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const sae = { id: "demo-l1", digest: "00", layer: 1, hook_point: "blocks.1.hook_resid_post", d_sae: 512 };
const replicaReport = (more: Partial<ReplicaReport> = {}): ReplicaReport => ({
  id: "r1",
  model: "tiny",
  engine: "native",
  state: "ready",
  slots: 8,
  in_flight: 3,
  in_flight_by_edge: { "edge-1": 2, "edge-2": 1 },
  waiting: 1,
  free_kv_cells: 25,
  total_kv_cells: 100,
  tokens_per_second: 0,
  prefill_tokens_per_second: 0,
  context_length: 2_048,
  capabilities: ["chat"],
  saes: [sae],
  ...more,
});
const report = (more: Partial<Report> = {}): Report => ({
  protocol: 1,
  host: "gpu-1",
  epoch: 1,
  seq: 1,
  at: 0,
  url: "http://10.0.0.1:8090",
  labels: {},
  replicas: [replicaReport()],
  ended: [],
  counters: [],
  gpus: [],
  memory: { total_bytes: 0, free_bytes: 0 },
  disk: null,
  weights: [],
  draining: false,
  ...more,
});
const endpoint = (more: Partial<StaticEndpoint> = {}): StaticEndpoint => ({
  id: "local",
  url: "http://127.0.0.1:9000/v1",
  models: ["small", "large"],
  pool: null,
  weight: 1,
  priority: 1,
  slots: 4,
  ...more,
});

function bench(settings: Partial<FleetSettings> = {}) {
  const clock = new ManualClock();
  const told: PoolDigest[] = [];
  const coordinator = {
    update: (digest: PoolDigest) => {
      told.push(digest);
      return Promise.resolve();
    },
  };
  const fleet = new InProcessFleet({
    clock,
    logger: silentLogger,
    coordinator,
    settings: {
      edge: "edge-1",
      reportEveryMs: 1_000,
      unreachableAfterMs: 10_000,
      lostAfterMs: 300_000,
      pushEveryMs: 1_000,
      endpoints: [],
      models: {},
      ...settings,
    },
  });
  return { clock, fleet, told };
}

describe("the fleet", () => {
  it("makes pools of reports and tells the Coordinator at once", async () => {
    const { fleet, told, clock } = bench();
    expect(await fleet.accept(report())).toEqual({ ack_seq: 1, report_every_ms: 1_000, desired: null });
    expect(told).toMatchObject([
      {
        pool: "tiny",
        replicas: [
          {
            target: { key: "gpu-1/r1", kind: "host", url: "http://10.0.0.1:8090", model: "tiny", epoch: 1 },
            ready: true,
            slots: 8,
            reportedInFlight: 3,
            reportedInFlightOfThisEdge: 2,
            waiting: 1,
            reportedAtMs: clock.nowMs(),
            saes: ["demo-l1"],
          },
        ],
      },
    ]);
  });

  it("drops a report that is older by start or by number, and still answers it", async () => {
    const { fleet, told } = bench();
    await fleet.accept(report({ epoch: 2, seq: 5 }));
    await fleet.accept(report({ epoch: 2, seq: 5, replicas: [] }));
    await fleet.accept(report({ epoch: 2, seq: 4, replicas: [] }));
    expect(await fleet.accept(report({ epoch: 1, seq: 9, replicas: [] }))).toMatchObject({ ack_seq: 9 });
    expect(await fleet.resolve("tiny")).not.toBeNull();
    expect(told).toHaveLength(1);
    await fleet.accept(report({ epoch: 3, seq: 0, replicas: [] }));
    expect(await fleet.resolve("tiny")).toBeNull();
    expect(told.at(-1)).toEqual({ pool: "tiny", replicas: [] });
  });

  it("tells load alone at most once a second, and a change of shape at once", async () => {
    const { fleet, told, clock } = bench();
    await fleet.accept(report());
    for (let seq = 2; seq < 10; seq++) {
      clock.advance(100);
      await fleet.accept(report({ seq, replicas: [replicaReport({ in_flight: seq })] }));
    }
    expect(told).toHaveLength(1);
    clock.advance(300);
    expect(told).toHaveLength(2);
    expect(told[1]?.replicas[0]?.reportedInFlight).toBe(9);
    await fleet.accept(report({ seq: 10, replicas: [replicaReport({ state: "failed", reason: "bad file" })] }));
    expect(told).toHaveLength(3);
    expect(told[2]?.replicas[0]?.ready).toBe(false);
  });

  it("joins the replicas of one model and shows callers what all of them can do", async () => {
    const { fleet } = bench({
      models: { tiny: { aliases: ["default"], description: "A small one.", contextLength: null, maxOutput: 100 } },
    });
    await fleet.accept(report());
    await fleet.accept(
      report({
        host: "gpu-2",
        replicas: [replicaReport({ context_length: 1_024, saes: [], capabilities: ["chat", "embeddings"] })],
      }),
    );
    expect(await fleet.models()).toMatchObject([
      {
        id: "tiny",
        pool: "tiny",
        aliases: ["default"],
        description: "A small one.",
        contextLength: 1_024,
        longestContext: 2_048,
        maxOutput: 100,
        capabilities: ["chat", "embeddings"],
        saes: [sae],
        readyReplicas: 2,
      },
    ]);
    expect((await fleet.resolve("default"))?.id).toBe("tiny");
  });

  it("keeps a model whose only replica is not ready, without its SAEs", async () => {
    const { fleet } = bench();
    await fleet.accept(report({ replicas: [replicaReport({ state: "starting" })] }));
    expect(await fleet.models()).toMatchObject([{ id: "tiny", readyReplicas: 0, saes: [] }]);
  });

  it("takes a draining host out of choice", async () => {
    const { fleet, told } = bench();
    await fleet.accept(report({ draining: true }));
    expect(told[0]?.replicas[0]?.draining).toBe(true);
    expect((await fleet.models())[0]?.readyReplicas).toBe(0);
  });

  it("hears a host whose clock was set back, once its former life is silent", async () => {
    const { fleet, clock } = bench();
    await fleet.accept(report({ epoch: 9 }));
    await fleet.accept(report({ epoch: 5 }));
    expect(await fleet.hosts()).toMatchObject([{ epoch: 9 }]);
    clock.advance(10_000);
    await fleet.accept(report({ epoch: 5 }));
    expect(await fleet.hosts()).toMatchObject([{ epoch: 5 }]);
  });

  it("judges silence by time that passed, not by steps of the wall clock", async () => {
    const { fleet, clock } = bench();
    await fleet.accept(report());
    clock.stepWall(3_600_000);
    clock.advance(9_999);
    expect(await fleet.resolve("tiny")).toMatchObject({ readyReplicas: 1 });
    clock.stepWall(-7_200_000);
    clock.advance(1);
    expect(await fleet.resolve("tiny")).toMatchObject({ readyReplicas: 0 });
  });

  it("gives up a host that has been silent for long, until it reports again", async () => {
    const { fleet, told, clock } = bench();
    await fleet.accept(report());
    clock.advance(299_999);
    // Silent already, and yet the last to be given up.
    expect((await fleet.resolve("tiny"))?.readyReplicas).toBe(0);
    expect(told.at(-1)?.replicas[0]?.ready).toBe(true);
    clock.advance(1);
    expect(told.at(-1)?.replicas[0]?.ready).toBe(false);
    expect(clock.pendingTimers).toBe(0);
    await fleet.accept(report({ seq: 2 }));
    expect((await fleet.resolve("tiny"))?.readyReplicas).toBe(1);
  });

  it("serves static endpoints from the start, each model as a pool or all in a pool by hand", async () => {
    const { fleet, told } = bench({
      endpoints: [
        endpoint(),
        endpoint({ id: "far", url: "https://far.example", models: ["Tiny-Instruct"], pool: "tiny", weight: 2 }),
      ],
    });
    expect(told.map(({ pool }) => pool).toSorted()).toEqual(["large", "small", "tiny"]);
    expect(told.find(({ pool }) => pool === "small")?.replicas).toMatchObject([
      {
        target: { key: "local/small", kind: "endpoint", url: "http://127.0.0.1:9000", model: "small", epoch: null },
        ready: true,
        slots: 4,
        priority: 1,
        reportedAtMs: null,
        saes: [],
      },
    ]);
    await fleet.accept(report());
    const latest = told.findLast(({ pool }) => pool === "tiny");
    expect(latest?.replicas.map(({ target, weight }) => [target.key, target.model, weight])).toEqual([
      ["gpu-1/r1", "tiny", 1],
      ["far/Tiny-Instruct", "Tiny-Instruct", 2],
    ]);
    expect((await fleet.resolve("Tiny-Instruct"))?.id).toBe("tiny");
  });

  it("keeps what is known of hosts for operators", async () => {
    const { fleet, clock } = bench();
    const speculation = { drafted: 9, accepted: 4, draft_model: 0 };
    await fleet.accept(
      report({
        replicas: [replicaReport({ state: "failed", reason: "not a GGUF file", speculation })],
        answers_refused: 3,
      }),
    );
    expect(await fleet.hosts()).toEqual([
      {
        host: "gpu-1",
        epoch: 1,
        lastReportAtMs: clock.nowMs(),
        draining: false,
        answersRefused: 3,
        replicas: [{ id: "r1", model: "tiny", state: "failed", reason: "not a GGUF file", speculation }],
      },
    ]);
    expect(fleet.kvOccupancy()).toEqual({ "gpu-1": 0.75 });
  });

  it("leaves no timer when it is closed", async () => {
    const { fleet, clock } = bench();
    await fleet.accept(report());
    await fleet.accept(report({ seq: 2 }));
    fleet.close();
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("an endpoint's address", () => {
  it.each(["http://h:1", "http://h:1/", "http://h:1/v1", "http://h:1/v1/"])("may be written as %s", (url) => {
    expect(originOf(url)).toBe("http://h:1");
  });
});

describe("what the operator says of models", () => {
  const note = { aliases: [], description: null, contextLength: null, maxOutput: null };

  it("keeps a model to the machines that carry its labels", async () => {
    const { fleet, told } = bench({
      models: { tiny: { ...note, nodeSelector: { zone: "eu" } }, small: { ...note, nodeSelector: { zone: "eu" } } },
      endpoints: [
        endpoint({ id: "us", models: ["small"] }),
        endpoint({ id: "eu", models: ["small"], labels: { zone: "eu" } }),
      ],
    });
    await fleet.accept(report({ labels: { zone: "us" } }));
    expect(await fleet.resolve("tiny")).toBeNull();
    await fleet.accept(report({ host: "gpu-2", labels: { zone: "eu", class: "big" } }));
    expect(told.findLast(({ pool }) => pool === "tiny")?.replicas.map(({ target }) => target.backend)).toEqual([
      "gpu-2",
    ]);
    expect(told.find(({ pool }) => pool === "small")?.replicas.map(({ target }) => target.backend)).toEqual(["eu"]);
  });

  it("adds to and takes from what machines say they can do", async () => {
    const { fleet, told } = bench({
      models: {
        tiny: { ...note, can: ["vision"], lacks: ["embeddings"] },
        small: { ...note, contextLength: 900, lacks: ["tools"] },
      },
      endpoints: [endpoint({ models: ["small"] })],
    });
    await fleet.accept(report({ replicas: [replicaReport({ capabilities: ["chat", "embeddings"] })] }));
    expect(await fleet.resolve("tiny")).toMatchObject({ capabilities: ["chat", "vision"], lacks: ["tools"] });
    expect(await fleet.resolve("small")).toMatchObject({ lacks: ["tools"], contextLength: 900, longestContext: 900 });
    expect(told.find(({ pool }) => pool === "small")?.replicas).toMatchObject([
      { lacks: ["tools"], contextLength: 900 },
    ]);
  });

  it("knows a model with fallbacks by name and alias though nothing serves it, and still waits for its first host (C119)", async () => {
    const { fleet } = bench({ models: { x: { ...note, aliases: ["ex"], fallbacks: ["tiny"] }, y: note } });
    expect(await fleet.resolve("ex")).toMatchObject({ id: "x", readyReplicas: 0, failure: null, fallbacks: ["tiny"] });
    expect(await fleet.resolve("y")).toBeNull();
    expect(await fleet.settling()).toBe(true);
    await fleet.accept(report());
    expect(await fleet.settling()).toBe(false);
  });
});
