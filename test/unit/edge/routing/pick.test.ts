import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DEFAULT_ROUTING_SETTINGS, type Candidate, type Requirement } from "../../../../edge/routing/candidate.ts";
import { pick } from "../../../../edge/routing/pick.ts";

const settings = DEFAULT_ROUTING_SETTINGS;
const candidate = (key: string, more: Partial<Candidate> = {}): Candidate => ({
  key,
  kind: "host",
  usable: true,
  slots: 8,
  ownInFlight: 0,
  othersInFlight: 0,
  waiting: 0,
  reportAgeMs: 0,
  capabilities: ["chat"],
  saes: [],
  lacks: [],
  contextLength: null,
  pace: null,
  weight: 1,
  priority: 0,
  busyUntilMs: 0,
  ejectedUntilMs: 0,
  probing: false,
  kvUse: null,
  ownWork: (more.ownInFlight ?? 0) * 512,
  workPerSecond: 25 * (more.slots ?? 8),
  warmth: 1,
  ...more,
});
const chat: Requirement = {
  capability: "chat",
  saeIds: [],
  needsSomeSae: false,
  excludedReplicas: [],
  features: [],
  contextLength: null,
};
const choose = (candidates: Candidate[], requirement: Partial<Requirement> = {}, turn = 0) =>
  pick(candidates, { ...chat, ...requirement }, { nowMs: 100_000, turn, settings });
const picked = (key: string) => ({ kind: "picked", key });

describe("the choice of a replica", () => {
  it("is the least loaded, what waits there included", () => {
    expect(choose([candidate("a", { ownInFlight: 2 }), candidate("b", { othersInFlight: 1 })])).toEqual(picked("b"));
    expect(choose([candidate("a", { othersInFlight: 1 }), candidate("b", { waiting: 2 })])).toEqual(picked("a"));
  });

  it("measures load against slots and weight", () => {
    const half = candidate("a", { slots: 4, ownInFlight: 2 });
    expect(choose([half, candidate("b", { slots: 16, ownInFlight: 4 })])).toEqual(picked("b"));
    expect(choose([half, candidate("b", { slots: 4, ownInFlight: 3, weight: 2 })])).toEqual(picked("b"));
  });

  it("lets equals take turns, whatever their order", () => {
    const all = [candidate("c"), candidate("a"), candidate("b")];
    expect([0, 1, 2, 3].map((turn) => choose(all, {}, turn))).toEqual(["a", "b", "c", "a"].map(picked));
    expect(choose(all.toReversed(), {}, 1)).toEqual(picked("b"));
  });

  it("uses a lower tier only when the higher has no room or is away", () => {
    const second = candidate("b", { priority: 1 });
    expect(choose([candidate("a", { ownInFlight: 7 }), second])).toEqual(picked("a"));
    expect(choose([candidate("a", { ownInFlight: 8 }), second])).toEqual(picked("b"));
    expect(choose([candidate("a", { usable: false }), second])).toEqual(picked("b"));
  });

  it("counts only our own requests once a report is stale", () => {
    const stale = candidate("a", { reportAgeMs: 3_001, othersInFlight: 8, waiting: 9, ownInFlight: 1 });
    expect(choose([stale])).toEqual(picked("a"));
    expect(choose([{ ...stale, reportAgeMs: 3_000 }])).toEqual({ kind: "none", why: "busy" });
  });

  it("gives a silent replica work only when there is no other", () => {
    const silent = candidate("a", { reportAgeMs: 10_001 });
    expect(choose([silent, candidate("b", { ownInFlight: 7 })])).toEqual(picked("b"));
    expect(choose([silent, candidate("b", { ownInFlight: 8 })])).toEqual({ kind: "none", why: "busy" });
    expect(choose([silent])).toEqual(picked("a"));
  });

  it("gives a silent replica a quarter of its slots, since nobody knows what it does", () => {
    const silent = (ownInFlight: number) => choose([candidate("a", { reportAgeMs: 10_001, ownInFlight })]);
    expect(silent(1)).toEqual(picked("a"));
    expect(silent(2)).toEqual({ kind: "none", why: "busy" });
  });

  it("passes over an ejected replica, but never over the last one", () => {
    const ejected = candidate("a", { ejectedUntilMs: 100_001 });
    expect(choose([ejected, candidate("b", { ownInFlight: 7 })])).toEqual(picked("b"));
    expect(choose([ejected])).toEqual(picked("a"));
  });

  it("leaves a replica alone that asked for it, even the last one", () => {
    expect(choose([candidate("a", { busyUntilMs: 100_001 })])).toEqual({ kind: "none", why: "busy" });
    expect(choose([candidate("a", { busyUntilMs: 100_000 })])).toEqual(picked("a"));
  });

  it("sends SAE work only to a host that holds every SAE", () => {
    const both = candidate("a", { saes: ["x", "y"] });
    expect(choose([candidate("b", { saes: ["x"] }), both], { saeIds: ["x", "y"] })).toEqual(picked("a"));
    expect(choose([candidate("b"), both], { needsSomeSae: true })).toEqual(picked("a"));
    expect(choose([candidate("e", { kind: "endpoint", saes: ["x"] })], { saeIds: ["x"] })).toMatchObject({
      why: "no_sae",
    });
  });

  it("names the SAEs that are there when the one asked for is not", () => {
    expect(choose([candidate("a", { saes: ["y", "x"] })], { saeIds: ["z"] })).toEqual({
      kind: "none",
      why: "no_sae",
      available: ["x", "y"],
    });
  });

  it("waits for a replica with that SAE which is starting", () => {
    const starting = candidate("a", { saes: ["z"], usable: false });
    expect(choose([starting, candidate("b")], { saeIds: ["z"] })).toEqual({ kind: "none", why: "no_machine" });
  });

  it("says why nothing can be picked", () => {
    expect(choose([])).toEqual({ kind: "none", why: "no_machine" });
    expect(choose([candidate("a")], { capability: "embeddings" })).toEqual({ kind: "none", why: "no_capability" });
    expect(choose([candidate("a")], { excludedReplicas: ["a"] })).toEqual({ kind: "none", why: "all_tried" });
  });

  it("never names a replica without room, without the SAE, or already tried", () => {
    const arbitrary = fc.record({
      key: fc.constantFrom("a", "b", "c", "d"),
      kind: fc.constantFrom("host" as const, "endpoint" as const),
      usable: fc.boolean(),
      slots: fc.nat(4),
      ownInFlight: fc.nat(5),
      othersInFlight: fc.option(fc.nat(5)),
      waiting: fc.nat(3),
      reportAgeMs: fc.option(fc.nat(20_000)),
      capabilities: fc.constantFrom([], ["chat"], ["embeddings"]),
      saes: fc.subarray(["x", "y"]),
      weight: fc.constantFrom(0.5, 1, 2),
      priority: fc.nat(2),
      busyUntilMs: fc.constantFrom(0, 200_000),
      ejectedUntilMs: fc.constantFrom(0, 200_000),
      probing: fc.boolean(),
      kvUse: fc.option(fc.double({ min: 0, max: 1, noNaN: true })),
      ownWork: fc.nat(5_000),
      workPerSecond: fc.constantFrom(0, 25, 200),
      warmth: fc.constantFrom(0.1, 1),
      lacks: fc.subarray(["chat", "tools"]),
      contextLength: fc.option(fc.constantFrom(512, 4_096)),
      pace: fc.option(fc.record({ ttftMs: fc.nat(1_000), tpotMs: fc.option(fc.nat(50)) })),
    });
    fc.assert(
      fc.property(
        fc.uniqueArray(arbitrary, { selector: ({ key }) => key }),
        fc.subarray(["x", "y"]),
        fc.subarray(["a", "b"]),
        fc.nat(9),
        (candidates, saeIds, excludedReplicas, turn) => {
          const choice = choose(candidates, { saeIds, excludedReplicas }, turn);
          if (choice.kind === "none") return;
          const found = candidates.find(({ key }) => key === choice.key);
          expect(found?.usable).toBe(true);
          expect(excludedReplicas).not.toContain(choice.key);
          expect(found?.ownInFlight ?? 0).toBeLessThan(found?.slots ?? 0);
          expect(found?.busyUntilMs).toBe(0);
          expect(saeIds.length > 0 && found?.kind === "endpoint").toBe(false);
          for (const id of saeIds) expect(found?.saes).toContain(id);
        },
      ),
    );
  });
});
