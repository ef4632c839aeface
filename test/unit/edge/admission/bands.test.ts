import { describe, expect, it } from "vitest";
import { BandQueue } from "../../../../edge/admission/band-queue.ts";
import { DecayedWork } from "../../../../edge/admission/decayed-work.ts";
import { DrainRate } from "../../../../edge/admission/drain-rate.ts";
import { ReturnPlaces } from "../../../../edge/admission/return-places.ts";
import { poolSaturation, saturationOf } from "../../../../edge/admission/saturation.ts";
import { DEFAULT_ADMISSION_SETTINGS, DEFAULT_BAND } from "../../../../edge/admission/settings.ts";
import type { Candidate } from "../../../../edge/routing/candidate.ts";
import { replica } from "../../../support/dispatch-bench.ts";
import { PoolSimulation } from "../../../support/pool-simulation.ts";

const settings = DEFAULT_ADMISSION_SETTINGS;
const candidate = (more: Partial<Candidate> = {}): Candidate => ({
  key: "a",
  kind: "host",
  usable: true,
  slots: 8,
  ownInFlight: 0,
  othersInFlight: 0,
  waiting: 0,
  kvUse: null,
  ownWork: 0,
  workPerSecond: 200,
  warmth: 1,
  reportAgeMs: 0,
  capabilities: [],
  saes: [],
  lacks: [],
  contextLength: null,
  pace: null,
  weight: 1,
  priority: 0,
  busyUntilMs: 0,
  ejectedUntilMs: 0,
  probing: false,
  ...more,
});

describe("bands", () => {
  it("go by priority, whatever came first", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 1 })]);
    const order: string[] = [];
    for (const band of ["bulk", "bulk", "default", "interactive"])
      simulation.admit({ band, serviceMs: 1_000, onGranted: () => order.push(band) });
    simulation.runUntil(10_000);
    expect(order).toEqual(["bulk", "interactive", "default", "bulk"]);
  });

  it("get machines up to their ceiling of the pool's saturation", () => {
    const heldBy = (band: string): number => {
      const simulation = new PoolSimulation([replica("a/r", { slots: 20 })]);
      let held = 0;
      for (let made = 0; made < 30; made++) simulation.admit({ band, serviceMs: 1_000, onGranted: () => held++ });
      return held;
    };
    expect([heldBy("interactive"), heldBy("default"), heldBy("bulk")]).toEqual([20, 18, 14]);
  });

  it("let a machine work that is alone and idle, whatever it says of its cache and its queue", () => {
    const full = { freeKvCells: 0, totalKvCells: 100, waiting: 50, reportedInFlight: 0, reportedAtMs: 1_000_000 };
    const simulation = new PoolSimulation([replica("a/r", { slots: 2, ...full })]);
    let held = 0;
    for (let made = 0; made < 2; made++) simulation.admit({ band: "bulk", serviceMs: 1_000, onGranted: () => held++ });
    expect(held).toBe(2);
  });

  it("have each a time limit of their own", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 1 })]);
    const ended: string[] = [];
    simulation.admit({ serviceMs: 1_000_000 });
    for (const band of ["bulk", "default", "interactive"])
      simulation.admit({
        band,
        serviceMs: 1,
        onRefused: ({ code }) => ended.push(`${band} ${simulation.nowMs} ${code}`),
      });
    simulation.runUntil(400_000);
    expect(ended).toEqual([
      "interactive 30000 queue_timeout",
      "default 60000 queue_timeout",
      "bulk 300000 queue_timeout",
    ]);
  });

  it("begin the other clock when a machine appears or goes, and bound both together", () => {
    const bands = [{ ...DEFAULT_BAND, name: "default", queueTtlMs: 5_000 }];
    const simulation = new PoolSimulation([], { bands });
    const refused: string[] = [];
    simulation.admit({ serviceMs: 1, onRefused: ({ code }) => refused.push(`${code} ${simulation.nowMs}`) });
    simulation.runUntil(9_000);
    const busy = replica("a/r", { slots: 0 });
    simulation.handle({ kind: "update", digest: { pool: "m", replicas: [busy] }, wallNowMs: 1_009_000 });
    simulation.runUntil(13_999);
    expect(refused).toEqual([]);
    simulation.runUntil(60_000);
    expect(refused).toEqual(["queue_timeout 14000"]);
  });

  it("are passed by where admission is off: full machines are asked too, and nobody waits", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 1 })], { enabled: false });
    let held = 0;
    for (let made = 0; made < 5; made++) simulation.admit({ band: "bulk", serviceMs: 1_000, onGranted: () => held++ });
    expect(held).toBe(5);
    const none = new PoolSimulation([], { enabled: false });
    const refused: string[] = [];
    none.admit({ serviceMs: 1, onRefused: ({ code }) => refused.push(code) });
    expect(refused).toEqual(["no_replica_available"]);
  });

  it("make room for a project by the newest request of one that filled the queue", () => {
    const bands = [{ ...DEFAULT_BAND, name: "default", queueCapacityRequests: 10 }];
    const simulation = new PoolSimulation([replica("a/r", { slots: 1 })], { bands });
    const refused: string[] = [];
    const ask = (project: string, name: string) =>
      simulation.admit({ project, serviceMs: 1_000, onRefused: ({ code }) => refused.push(`${name} ${code}`) });
    for (let made = 0; made <= 10; made++) ask("hog", `hog ${made}`);
    ask("hog", "hog 11");
    ask("small", "small 1");
    expect(refused).toEqual(["hog 11 queue_full", "hog 10 queue_full"]);
    expect(simulation.pool.stats(0).queueDepthByBand).toMatchObject({ default: 10 });
  });

  it("tell who waits its place and the time it may take", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 1 })]);
    for (let made = 0; made < 6; made++) simulation.admit({ serviceMs: 2_000 });
    simulation.admit({ band: "interactive", serviceMs: 2_000 });
    expect(simulation.pool.prospect("r6")).toEqual({ place: 6, waitMs: null });
    simulation.runUntil(4_500);
    expect(simulation.pool.prospect("r6")?.waitMs).toBeGreaterThan(3_000);
    expect(simulation.pool.prospect("r1")).toBeNull();
  });
});

describe("saturation", () => {
  it("is the worst of queue, cells and requests, and may pass 1", () => {
    expect(saturationOf(candidate({ ownInFlight: 2 }), settings)).toBe(0.25);
    expect(saturationOf(candidate({ ownInFlight: 2, waiting: 10 }), settings)).toBe(2);
    expect(saturationOf(candidate({ kvUse: 0.45 }), settings)).toBe(0.5);
    expect(saturationOf(candidate({ ownInFlight: 2 }), { ...settings, targetInFlight: 4 })).toBe(0.5);
  });

  it("trusts a stale report in nothing", () => {
    const stale = candidate({ ownInFlight: 2, othersInFlight: 6, waiting: 50, kvUse: 1, reportAgeMs: 3_001 });
    expect(saturationOf(stale, settings)).toBe(0.25);
  });

  it("weighs machines by their slots, and leaves out those that nothing goes to", () => {
    const big = candidate({ key: "b", slots: 24 });
    expect(poolSaturation([candidate({ ownInFlight: 8 }), big], settings, 0)).toBe(0.25);
    const broken = candidate({ key: "c", slots: 100, ejectedUntilMs: 1 });
    expect(poolSaturation([candidate({ ownInFlight: 8 }), big, broken], settings, 0)).toBe(0.25);
    expect(poolSaturation([candidate({ busyUntilMs: 1 }), big], settings, 0)).toBe(0.25);
    expect(poolSaturation([candidate({ usable: false })], settings, 0)).toBe(1);
  });

  it("judges a pool of one by its requests alone", () => {
    expect(poolSaturation([candidate({ ownInFlight: 2, waiting: 50, kvUse: 1 })], settings, 0)).toBe(0.25);
  });
});

describe("the parts of fairness and waiting", () => {
  it("forgets half of the work in a minute, and all of it in time", () => {
    const work = new DecayedWork();
    work.add("p", 1_000, 0);
    expect(work.of("p", 60_000)).toBe(500);
    work.add("p", -400, 60_000);
    expect(work.of("p", 60_000)).toBe(100);
    work.add("p", -400, 60_000);
    expect([work.of("p", 60_000), work.size]).toEqual([0, 0]);
  });

  it("remembers no more projects than its bound", () => {
    const work = new DecayedWork();
    for (let made = 0; made < 10_000; made++) work.add(`p${made}`, 1_000, 0);
    expect(work.size).toBeLessThanOrEqual(4_096);
    for (let made = 0; made < 10_000; made++) work.add(`q${made}`, 1_000, 3_600_000);
    expect(work.size).toBeLessThanOrEqual(4_096);
    expect(work.of("q9999", 3_600_000)).toBe(1_000);
  });

  it("measures the drain only while there is something to drain", () => {
    const rate = new DrainRate();
    rate.observe(0, false);
    expect(rate.intervalMs).toBeNull();
    for (let atMs = 100; atMs <= 2_000; atMs += 100) {
      rate.observe(atMs, true);
      rate.departed();
    }
    rate.observe(600_000, false);
    expect(rate.intervalMs).toBeCloseTo(100, 0);
  });

  it("spaces those who come back, keeps their places, and promises none beyond the longest wait", () => {
    const places = new ReturnPlaces();
    const when = { nowMs: 0, waitMs: 2_000, intervalMs: 2_000, maxSeconds: 6 };
    expect([places.give("a", when), places.give("b", when)]).toEqual([2, 5]);
    const late = [places.give("c", when), places.give("c", when), places.give("c", when)];
    expect(late.every((seconds) => seconds >= 3 && seconds <= 6)).toBe(true);
    expect(places.kept(0, 8)).toBe(2);
    expect(places.take("a", 1_000)).toBe(false);
    expect(places.kept(1_600, 8)).toBe(3);
    expect([places.take("b", 1_600), places.take("a", 1_600), places.take("a", 1_600)]).toEqual([false, true, false]);
    expect(places.kept(9_000, 8)).toBe(0);
  });

  it("knows a band's promise only while somebody waits", () => {
    expect(new BandQueue({ ...DEFAULT_BAND, name: "x" }).trickleAtMs()).toBe(Infinity);
  });
});
