import { describe, expect, it } from "vitest";
import { ReplicaBook } from "../../../../edge/admission/replica-book.ts";
import { DEFAULT_ADMISSION_SETTINGS } from "../../../../edge/admission/settings.ts";
import type { ReplicaDigest } from "../../../../edge/ports/coordinator.ts";
import { promptPrefix } from "../../../../edge/routing/prompt-prefix.ts";
import { replica } from "../../../support/dispatch-bench.ts";
import { PoolSimulation } from "../../../support/pool-simulation.ts";

const cells = { freeKvCells: 900, totalKvCells: 1_000 };
function book(more: Partial<Omit<ReplicaDigest, "target">> = {}, joined = false, kind: "host" | "endpoint" = "host") {
  const at = (reportedAtMs: number, own: Partial<Omit<ReplicaDigest, "target">> = {}) =>
    replica("a/r", { slots: 8, reportedAtMs, ...more, ...own, target: { kind } });
  const made = new ReplicaBook(at(0), { reportedAtMs: 0, nowMs: 0, joined }, DEFAULT_ADMISSION_SETTINGS);
  return { made, at, seen: (nowMs = 1) => made.candidate(nowMs, 25) };
}
const answered = { result: "answered", work: null } as const;

describe("a replica as its pool's owner knows it", () => {
  it("has the cells of what was sent since the report on top of what it reported", () => {
    const { made, at, seen } = book(cells);
    expect(seen().kvUse).toBeCloseTo(0.1);
    made.claim("one", { tokens: 200, work: 1 }, 1);
    made.claim("two", { tokens: 300, work: 1 }, 2);
    expect(seen().kvUse).toBeCloseTo(0.6);
    made.release("two", answered, 3);
    expect(seen().kvUse).toBeCloseTo(0.3);
    // The next report has counted what was sent before it.
    made.claim("three", { tokens: 100, work: 1 }, 12);
    made.update(at(10, { freeKvCells: 700 }), 10, 13);
    expect(seen().kvUse).toBeCloseTo(0.4);
  });

  it("takes the share that another kind of server tells as it is", () => {
    const { made, seen } = book(cells, false, "endpoint");
    made.claim("one", { tokens: 200, work: 1 }, 1);
    expect(seen().kvUse).toBeCloseTo(0.1);
  });

  it("has fewer waiting than reported by those of ours that ended since", () => {
    const { made, seen } = book({ waiting: 3, reportedInFlight: 9, reportedInFlightOfThisEdge: 9 });
    for (let claim = 0; claim < 9; claim++) made.claim(`c${claim}`, { tokens: 1, work: 1 }, 0);
    expect(seen().waiting).toBe(3);
    for (let claim = 0; claim < 2; claim++) made.release(`c${claim}`, answered, 1);
    expect(seen().waiting).toBe(1);
  });

  it("counts as others' what a server tells beyond the most that was ours since it was last asked", () => {
    const { made, at, seen } = book({ reportedInFlight: 0 });
    for (let claim = 0; claim < 3; claim++) made.claim(`c${claim}`, { tokens: 1, work: 1 }, 1);
    made.release("c0", answered, 2);
    // The page was made before that one ended.
    made.update(at(5, { reportedInFlight: 3 }), 5, 5);
    expect(seen(6)).toMatchObject({ ownInFlight: 2, othersInFlight: 0 });
    made.update(at(9, { reportedInFlight: 5 }), 9, 9);
    expect(seen(10)).toMatchObject({ ownInFlight: 2, othersInFlight: 3 });
    // The same report told again changes nothing.
    made.claim("more", { tokens: 1, work: 1 }, 10);
    made.update(at(9, { reportedInFlight: 5 }), 9, 11);
    expect(seen(12)).toMatchObject({ ownInFlight: 3, othersInFlight: 3 });
  });

  it("is cold at first beside others, and again when it loaded or its process is another", () => {
    expect(book().seen(0).warmth).toBe(1);
    const { made, at, seen } = book({}, true);
    expect([0, 3_000, 15_000, 30_000].map((nowMs) => seen(nowMs).warmth)).toEqual([0.1, 0.1, 0.5, 1]);
    made.update(at(40_000, { ready: false }), 40_000, 40_000);
    expect(made.update(at(50_000), 50_000, 50_000)).toBe(true);
    expect(seen(50_000).warmth).toBe(0.1);
    expect(made.update(at(60_000), 60_000, 60_000)).toBe(false);
    const restarted = { ...at(90_000), target: { ...at(0).target, epoch: 2 } };
    expect(made.update(restarted, 90_000, 90_000)).toBe(true);
    expect(seen(90_000).warmth).toBe(0.1);
  });

  it("is as fast as its pool until it has worked long enough to tell", () => {
    const { made, seen } = book();
    const work = (claim: string, fromMs: number, ms: number, done: number): void => {
      made.claim(claim, { tokens: 1, work: 1 }, fromMs);
      made.release(claim, { result: "answered", work: done }, fromMs + ms);
    };
    work("quick", 0, 5, 1);
    expect(seen().workPerSecond / 8).toBeCloseTo(25, 0);
    for (let turn = 0; turn < 40; turn++) work(`c${turn}`, turn * 10_000, 10_000, 1_000);
    expect(seen().workPerSecond / 8).toBeGreaterThan(90);
  });
});

describe("a pool's owner", () => {
  it("charges a project for what was used, not for what was expected", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 1 })]);
    const order: string[] = [];
    const ask = (project: string, outputTokens: number) =>
      simulation.admit({
        project,
        outputTokens,
        serviceMs: 1_000,
        used: { promptTokens: 10, cachedTokens: 0, completionTokens: 10 },
        onGranted: () => order.push(project),
      });
    // One expects much and uses little; what it used is what counts for its next turn.
    for (const project of ["much", "little", "much", "little", "much", "little"])
      ask(project, project === "much" ? 1_000 : 20);
    simulation.runUntil(10_000);
    expect(order).toEqual(["much", "little", "much", "little", "much", "little"]);
  });

  it("lets the first request in where several idle machines say that they are full", () => {
    const full = { freeKvCells: 0, totalKvCells: 100, waiting: 50, reportedInFlight: 0, reportedAtMs: 1_000_000 };
    const simulation = new PoolSimulation([replica("a/r", full), replica("b/r", full)]);
    let held = 0;
    for (let made = 0; made < 3; made++) simulation.admit({ band: "bulk", serviceMs: 10, onGranted: () => held++ });
    expect(held).toBe(1);
    simulation.runUntil(100);
    expect(held).toBe(3);
  });

  it("forgets what a machine had cached when it leaves or restarts", () => {
    const three = ["a/r", "b/r", "c/r"].map((key) => replica(key));
    const simulation = new PoolSimulation(three);
    const prefix = promptPrefix("the same words again and again ".repeat(50), 0, "scope");
    const where: string[] = [];
    const ask = (): void => {
      simulation.admit({ prefix, serviceMs: 1, onGranted: ({ target }) => where.push(target.key) });
      simulation.runUntil(simulation.nowMs + 10);
    };
    for (let turn = 0; turn < 4; turn++) ask();
    expect(new Set(where).size).toBe(1);
    const restarted = three.map((one) =>
      one.target.key === where[0] ? { ...one, target: { ...one.target, epoch: 2 } } : one,
    );
    simulation.handle({ kind: "update", digest: { pool: "m", replicas: restarted }, wallNowMs: 1_000_000 });
    for (let turn = 0; turn < 4; turn++) ask();
    expect(where.slice(4)).not.toContain(where[0]);
  });
});
