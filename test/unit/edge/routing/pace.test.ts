import { describe, expect, it } from "vitest";
import { DEFAULT_ROUTING_SETTINGS, type Candidate } from "../../../../edge/routing/candidate.ts";
import { PaceMeter } from "../../../../edge/routing/pace.ts";
import { secondsOf, termsOf, TYPICAL_REQUEST } from "../../../../edge/routing/score.ts";

describe("what a machine lately took", () => {
  it("is what nearly all its streams kept; one hiccup of many is forgiven, one of few is not", () => {
    const meter = new PaceMeter();
    const add = (ttftMs: number, tpotMs: number | null = null) => meter.add({ ttftMs, tpotMs }, 0);
    add(100);
    add(900);
    expect(meter.at(0)).toBeNull();
    add(100);
    expect(meter.at(0)).toEqual({ ttftMs: 900, tpotMs: null });
    for (let made = 0; made < 20; made++) add(100 + made, 10);
    expect(meter.at(0)).toEqual({ ttftMs: 119, tpotMs: 10 });
  });

  it("is forgotten after half a minute, so that a machine that was slow is tried again", () => {
    const meter = new PaceMeter();
    for (let made = 0; made < 3; made++) meter.add({ ttftMs: 900, tpotMs: 10 }, 1_000 * made);
    expect(meter.at(29_999)?.ttftMs).toBe(900);
    expect(meter.at(30_000)).toBeNull();
    for (let made = 0; made < 3; made++) meter.add({ ttftMs: 100, tpotMs: 10 }, 31_500);
    expect(meter.at(31_500)?.ttftMs).toBe(900);
    expect(meter.at(32_000)?.ttftMs).toBe(100);
  });

  it("keeps no more than a few streams, the latest", () => {
    const meter = new PaceMeter();
    for (let made = 0; made < 1_000; made++) meter.add({ ttftMs: made < 936 ? 9_000 : 100, tpotMs: null }, 0);
    expect(meter.at(0)?.ttftMs).toBe(100);
  });
});

describe("headroom under what was promised", () => {
  const machine = (ttftMs: number, tpotMs: number | null): Candidate => ({
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
    pace: { ttftMs, tpotMs },
    weight: 1,
    priority: 0,
    busyUntilMs: 0,
    ejectedUntilMs: 0,
    probing: false,
  });
  const promised = (ttftMs: number | null, tpotMs: number | null, slo = 1) => ({
    ...DEFAULT_ROUTING_SETTINGS,
    policy: { ...DEFAULT_ROUTING_SETTINGS.policy, weights: { load: 1, kv: 1, slo }, slo: { ttftMs, tpotMs } },
  });
  const request = { work: 0, outputTokens: 100, waitedMs: 200 };

  it("costs the seconds by which a machine would miss it, the wait so far included", () => {
    expect(termsOf(machine(700, 30), request, promised(500, 20)).slo).toBeCloseTo(0.4 + 1);
    expect(termsOf(machine(300, 20), request, promised(500, 20)).slo).toBe(0);
    expect(termsOf(machine(700, null), request, promised(500, 20)).slo).toBeCloseTo(0.4);
  });

  it("costs nothing where nothing was promised", () => {
    expect(termsOf(machine(9_000, 900), request, promised(null, null)).slo).toBe(0);
  });

  it("weighs as its profile says, as load and cells do", () => {
    expect(secondsOf(machine(700, 30), request, promised(500, 20, 10))).toBeCloseTo(14);
    const flat = promised(500, 20, 0);
    const none = { ...flat, policy: { ...flat.policy, weights: { load: 0, kv: 0, slo: 0 } } };
    expect(secondsOf({ ...machine(700, 30), kvUse: 0.9, ownWork: 9_000 }, TYPICAL_REQUEST, none)).toBe(0);
  });
});
