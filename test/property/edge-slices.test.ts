import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { AHEAD_SHARE } from "../../edge/limits/slice-grants.ts";
import { SliceSimulation } from "../support/slice-simulation.ts";

type Event =
  | { readonly kind: "request"; readonly edge: number; readonly bound: bigint; readonly tokens: number }
  | { readonly kind: "settle"; readonly edge: number; readonly percent: bigint }
  | { readonly kind: "flush" | "renew" | "lost" | "late" | "kill"; readonly edge: number }
  | { readonly kind: "pass"; readonly ms: number };

const edge = fc.nat(2);
const eventArbitrary: fc.Arbitrary<Event> = fc.oneof(
  {
    weight: 12,
    arbitrary: fc.record({
      kind: fc.constant("request" as const),
      edge,
      bound: fc.bigInt(1n, 60n),
      tokens: fc.integer({ min: 1, max: 40 }),
    }),
  },
  {
    weight: 8,
    arbitrary: fc.record({ kind: fc.constant("settle" as const), edge, percent: fc.bigInt(0n, 100n) }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ kind: fc.constantFrom("flush" as const, "renew" as const, "late" as const), edge }),
  },
  { weight: 1, arbitrary: fc.record({ kind: fc.constantFrom("lost" as const, "kill" as const), edge }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("pass" as const), ms: fc.integer({ min: 0, max: 4_000 }) }) },
);

const SETTINGS = { budgetNanoUsd: 2_000n, requestsPerMinute: 48, tokensPerMinute: 900 };
const EDGES = 3;

describe("limits that edges share in slices", () => {
  it("never overspend money, whatever answers are lost or late and whichever edge is killed", () => {
    fc.assert(
      fc.property(fc.array(eventArbitrary, { maxLength: 400, size: "max" }), (events) => {
        const simulation = new SliceSimulation(EDGES, { ...SETTINGS, requestsPerMinute: 1e6, tokensPerMinute: 1e6 });
        // Answers on their way, and news of rows that are in the database.
        const late: (() => void)[] = [];
        for (const event of events) {
          if (event.kind === "pass") {
            simulation.nowMs += event.ms;
            for (const arrive of late.splice(0)) arrive();
            continue;
          }
          const at = simulation.edges[event.edge];
          if (at === undefined || (at.isDead && event.kind !== "settle" && event.kind !== "flush")) continue;
          switch (event.kind) {
            case "request":
              // One exchange at a time: an edge whose answer is on its way takes what it has.
              simulation.request(at, event.bound, event.tokens);
              break;
            case "settle":
              // A dead edge's requests run on at their machines, and its journal comes back.
              simulation.settle(at, event.percent);
              break;
            case "flush": {
              const tell = simulation.flush(at);
              if (event.edge === 1) late.push(tell);
              else tell();
              break;
            }
            case "renew":
              simulation.renew(at);
              break;
            case "lost":
              at.slices.failed(simulation.ask(at).asks);
              break;
            case "late": {
              const { asks, answer } = simulation.ask(at);
              // What happens between question and answer must not count on the answer.
              simulation.settle(at, 100n);
              simulation.flush(at)();
              at.slices.apply(asks, answer, simulation.nowMs);
              break;
            }
            case "kill":
              at.isDead = true;
              break;
            default:
              event satisfies never;
          }
          expect(simulation.exposedNanoUsd).toBeLessThanOrEqual(SETTINGS.budgetNanoUsd);
        }
      }),
      { numRuns: 150, endOnFailure: true },
    );
  });

  it("let in at most an eighth more than one edge would, and one request for each edge", () => {
    fc.assert(
      fc.property(fc.array(eventArbitrary, { minLength: 100, maxLength: 600, size: "max" }), (events) => {
        const simulation = new SliceSimulation(EDGES, { ...SETTINGS, budgetNanoUsd: 10n ** 9n });
        for (const event of events) {
          const at = event.kind === "pass" ? undefined : simulation.edges[event.edge];
          if (event.kind === "pass") simulation.nowMs += event.ms;
          else if (at === undefined || at.isDead) continue;
          else if (event.kind === "request") simulation.request(at, event.bound, event.tokens);
          else if (event.kind === "lost") at.slices.failed(simulation.ask(at).asks);
          else if (event.kind === "kill") at.isDead = true;
          else if (event.kind === "settle") simulation.settle(at, event.percent);
          else simulation.renew(at);
        }
        const ones = simulation.admittedAtMs.map((atMs) => ({ atMs, tokens: 1 }));
        // A bucket lets in what is in it and what runs in meanwhile.
        const requests = SETTINGS.requestsPerMinute;
        expect(simulation.mostWithin(60_000, ones)).toBeLessThanOrEqual(2 * requests + requests * AHEAD_SHARE + EDGES);
        const tokens = SETTINGS.tokensPerMinute;
        expect(simulation.mostWithin(60_000, simulation.tokensAt)).toBeLessThanOrEqual(
          2 * tokens + tokens * AHEAD_SHARE + EDGES * 40,
        );
      }),
      { numRuns: 100, endOnFailure: true },
    );
  });

  it("spend a budget to the last request that fits, though each edge holds a part of it", () => {
    const simulation = new SliceSimulation(EDGES, { ...SETTINGS, requestsPerMinute: 1e9, tokensPerMinute: 1e9 });
    let inVain = 0;
    for (let turn = 0; inVain < 50; turn += 1) {
      const at = simulation.edges[turn % EDGES];
      if (at === undefined) throw new Error("there is one");
      if (simulation.request(at, 7n, 1)) inVain = 0;
      else inVain += 1;
      simulation.settle(at, 100n);
      simulation.flush(at)();
      simulation.nowMs += 100;
      if (turn % 10 === 9) for (const one of simulation.edges) simulation.renew(one);
    }
    // 285 requests of 7 fit into 2,000.
    expect(simulation.spentNanoUsd).toBe(1_995n);
  });

  it("do not count money as unspent that came into the database while an answer was on its way", () => {
    const simulation = new SliceSimulation(2, { ...SETTINGS, budgetNanoUsd: 100n });
    const [one] = simulation.edges;
    if (one === undefined) throw new Error("there is one");
    expect(simulation.request(one, 60n, 1)).toBe(true);
    const { asks, answer } = simulation.ask(one);
    simulation.settle(one, 100n);
    simulation.flush(one)();
    one.slices.apply(asks, answer, simulation.nowMs);
    expect(simulation.request(one, 60n, 1)).toBe(false);
    expect(simulation.request(one, 40n, 1)).toBe(true);
  });

  it("give nobody anything in advance while another waits in vain, and get it back for that one", () => {
    const simulation = new SliceSimulation(3, { ...SETTINGS, budgetNanoUsd: 100n });
    const [one, other, third] = simulation.edges;
    if (one === undefined || other === undefined || third === undefined) throw new Error("there are three");
    expect(simulation.request(one, 10n, 1)).toBe(true);
    expect(simulation.heldNanoUsd(one)).toBeGreaterThan(10n);
    expect(simulation.request(other, 89n, 1)).toBe(false);
    simulation.slicesReturn(other);
    expect(simulation.request(third, 1n, 1)).toBe(true);
    expect(simulation.heldNanoUsd(third)).toBe(1n);
    // The first one hears of it with its next renewal, and gives back with the one after.
    simulation.renew(one);
    simulation.renew(one);
    expect(simulation.heldNanoUsd(one)).toBe(10n);
    expect(simulation.request(other, 89n, 1)).toBe(true);
  });

  it("hoard at most an eighth of a rate, however long edges keep silent", () => {
    const simulation = new SliceSimulation(EDGES, { ...SETTINGS, tokensPerMinute: 1e9, budgetNanoUsd: 10n ** 9n });
    for (const one of simulation.edges) expect(simulation.request(one, 1n, 1)).toBe(true);
    simulation.nowMs += 60_000;
    simulation.admittedAtMs.length = 0;
    for (let turn = 0; turn < 1_000; turn += 1) for (const one of simulation.edges) simulation.request(one, 1n, 1);
    const requests = SETTINGS.requestsPerMinute;
    expect(simulation.admittedAtMs.length).toBeGreaterThanOrEqual(requests);
    expect(simulation.admittedAtMs.length).toBeLessThanOrEqual(requests + requests * AHEAD_SHARE + EDGES);
  });

  it("give back what a quiet edge holds", () => {
    const simulation = new SliceSimulation(2, SETTINGS);
    const [one, other] = simulation.edges;
    if (one === undefined || other === undefined) throw new Error("there are two");
    expect(simulation.request(one, 10n, 1)).toBe(true);
    expect(simulation.heldNanoUsd(one)).toBeGreaterThan(10n);
    simulation.settle(one, 100n);
    simulation.flush(one)();
    simulation.nowMs += 15_000;
    simulation.renew(one);
    expect(simulation.heldNanoUsd(one)).toBe(0n);
    expect(simulation.request(other, 1_990n, 1)).toBe(true);
  });
});
