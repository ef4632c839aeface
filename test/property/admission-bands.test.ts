import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { DEFAULT_BAND, type BandSettings } from "../../edge/admission/settings.ts";
import { replica } from "../support/dispatch-bench.ts";
import { jain, PoolSimulation, seeded } from "../support/pool-simulation.ts";

const three: readonly BandSettings[] = [
  { ...DEFAULT_BAND, name: "interactive", priority: 100, queueTtlMs: 30_000, maxWaitMs: 5_000 },
  { ...DEFAULT_BAND, name: "default", priority: 50, saturationCeiling: 0.9 },
  { ...DEFAULT_BAND, name: "bulk", saturationCeiling: 0.7, queueTtlMs: 300_000, maxWaitMs: 60_000 },
];

describe("the promise of the bands", () => {
  it("gives an overdue band its share of grants, however much comes from above", () => {
    fc.assert(
      fc.property(
        fc.nat(1_000),
        fc.integer({ min: 2, max: 8 }),
        fc.integer({ min: 500, max: 1_500 }),
        (seed, slots, serviceMs) => {
          const random = seeded(seed);
          const simulation = new PoolSimulation([replica("a/r", { slots })], { bands: three });
          const grants: { readonly band: string; readonly atMs: number; readonly overdue: readonly string[] }[] = [];
          // Three times what the machine can do, each band alone more than its share.
          const everyMs = serviceMs / slots / 3;
          let atMs = 0;
          while (atMs < 200_000) {
            const band = ["interactive", "interactive", "default", "bulk"][Math.floor(random() * 4)] ?? "default";
            simulation.at(atMs, () =>
              simulation.admit({
                band,
                serviceMs: serviceMs * (0.5 + random()),
                onGranted: () => {
                  const { oldestWaitMsByBand } = simulation.pool.stats(simulation.nowMs);
                  const overdue = three.filter(({ name, maxWaitMs }) => (oldestWaitMsByBand[name] ?? 0) >= maxWaitMs);
                  grants.push({ band, atMs: simulation.nowMs, overdue: overdue.map(({ name }) => name) });
                },
              }),
            );
            atMs += everyMs * 2 * random();
          }
          simulation.runUntil(200_000);
          for (const { name } of three) {
            // Grants to others while this band had somebody overdue all the time.
            let gap = 0;
            for (const grant of grants) {
              gap = grant.band === name || !grant.overdue.includes(name) ? 0 : gap + 1;
              expect(gap).toBeLessThanOrEqual(10 * three.length);
            }
          }
          expect(grants.filter(({ band }) => band === "bulk").length).toBeGreaterThan(grants.length * 0.04);
        },
      ),
      { numRuns: 5 },
    );
  });

  it("lets nobody wait past it where a band asks for less than its share", () => {
    const random = seeded(7);
    const simulation = new PoolSimulation([replica("a/r", { slots: 4 })], { bands: three });
    const waits: number[] = [];
    const refused: string[] = [];
    for (let atMs = 0; atMs < 600_000; atMs += 50)
      simulation.at(atMs, () => simulation.admit({ band: "interactive", serviceMs: 400 * (0.5 + random()) }));
    // The machine does ten a second; a tenth of that is the bulk band's, and it asks for half of it.
    for (let atMs = 0; atMs < 600_000; atMs += 2_000)
      simulation.at(atMs, () =>
        simulation.admit({
          band: "bulk",
          serviceMs: 400,
          onGranted: ({ queuedMs }) => waits.push(queuedMs),
          onRefused: ({ code }) => refused.push(code),
        }),
      );
    simulation.runUntil(600_000);
    expect(refused).toEqual([]);
    expect(waits.length).toBeGreaterThan(200);
    // A tenth of ten a second is one a second: whoever is overdue goes with the next.
    expect(Math.max(...waits)).toBeLessThan(60_000 + 5_000);
  });

  it("holds bulk work back from a machine that only long requests of others fill, until its promise is due", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 8 })], { bands: three });
    for (let made = 0; made < 6; made++) simulation.admit({ band: "interactive", serviceMs: 500_000 });
    let grantedAtMs = 0;
    simulation.admit({ band: "bulk", serviceMs: 1, onGranted: () => (grantedAtMs = simulation.nowMs) });
    simulation.runUntil(59_999);
    expect(grantedAtMs).toBe(0);
    simulation.runUntil(60_001);
    expect(grantedAtMs).toBe(60_000);
  });
});

describe("fairness between projects of one band", () => {
  it("shares the machines evenly between equal projects, however unevenly they ask", () => {
    for (const seed of [1, 2]) {
      const random = seeded(seed);
      const simulation = new PoolSimulation([replica("a/r", { slots: 4 }), replica("b/r", { slots: 4 })]);
      const served = new Map<string, number>();
      // Each asks for more than its share; the first for ten times as much as the last.
      for (const [place, project] of ["one", "two", "three", "four", "five"].entries()) {
        const everyMs = 20 + place * 30;
        for (let atMs = 0; atMs < 150_000; atMs += everyMs * (0.5 + random())) {
          const completionTokens = Math.ceil(random() * 200);
          simulation.at(atMs, () =>
            simulation.admit({
              project,
              serviceMs: 100 + completionTokens * 5,
              used: { promptTokens: 100, cachedTokens: 0, completionTokens },
              onGranted: () => served.set(project, (served.get(project) ?? 0) + 100 + 2 * completionTokens),
            }),
          );
        }
      }
      simulation.runUntil(150_000);
      expect(served.size).toBe(5);
      expect(jain([...served.values()])).toBeGreaterThanOrEqual(0.95);
    }
  });

  it("shares by work and not by number of requests", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 2 })]);
    const work = new Map<string, number>();
    for (const [project, completionTokens] of [
      ["short", 50],
      ["long", 500],
    ] as const)
      for (let atMs = 0; atMs < 300_000; atMs += 100)
        simulation.at(atMs, () =>
          simulation.admit({
            project,
            serviceMs: completionTokens * 4,
            outputTokens: completionTokens,
            used: { promptTokens: 100, cachedTokens: 0, completionTokens },
            onGranted: () => work.set(project, (work.get(project) ?? 0) + 100 + 2 * completionTokens),
          }),
        );
    simulation.runUntil(300_000);
    expect(jain([...work.values()])).toBeGreaterThanOrEqual(0.95);
  });

  it("does not let a project that was away take everything until it has caught up", () => {
    const simulation = new PoolSimulation([replica("a/r", { slots: 1 })]);
    const order: string[] = [];
    const ask = (project: string, atMs: number) =>
      simulation.at(atMs, () =>
        simulation.admit({
          project,
          serviceMs: 1_000,
          used: { promptTokens: 100, cachedTokens: 0, completionTokens: 100 },
          onGranted: () => order.push(project),
        }),
      );
    for (let atMs = 0; atMs < 60_000; atMs += 1_000) ask("steady", atMs);
    for (let made = 0; made < 30; made++) ask("late", 30_500);
    for (let made = 0; made < 30; made++) ask("steady", 30_500);
    simulation.runUntil(51_000);
    const after = order.slice(31);
    expect(after.length).toBeGreaterThan(15);
    expect(
      jain([after.filter((one) => one === "late").length, after.filter((one) => one === "steady").length]),
    ).toBeGreaterThan(0.95);
  });
});

describe("computed Retry-After", () => {
  it("tells clients when to come back, and nine in ten that do are let in", () => {
    for (const [clients, slots, serviceMs, projects] of [
      // Each a project of its own, or many of a few projects whose clients say that they come back, as OpenAI's do.
      [300, 4, 400, 300],
      [300, 4, 400, 7],
      [80, 1, 300, 3],
      [500, 16, 900, 500],
    ] as const) {
      const random = seeded(clients);
      const simulation = new PoolSimulation([replica("a/r", { slots })], {
        bands: [{ ...DEFAULT_BAND, name: "default", queueCapacityRequests: 20, queueTtlMs: 60_000 }],
      });
      let returned = 0;
      let letIn = 0;
      const told: number[] = [];
      const ask = (project: string, again: boolean): void => {
        let refusedNow = false;
        if (again) returned++;
        simulation.admit({
          project,
          returning: projects < clients ? again : null,
          serviceMs: serviceMs * (0.5 + random()),
          onRefused: ({ retryAfterSeconds, code }) => {
            refusedNow = code === "queue_full";
            told.push(retryAfterSeconds);
            simulation.at(simulation.nowMs + retryAfterSeconds * 1_000 + random() * 300, () => ask(project, true));
          },
          onEnded: () => simulation.at(simulation.nowMs + 5_000 * random(), () => ask(project, false)),
        });
        if (again && !refusedNow) letIn++;
      };
      // All at once, spread over a few projects; then each again a while after its answer.
      for (let made = 0; made < clients; made++)
        simulation.at(1_000 * random(), () => ask(`project-${made % projects}`, false));
      simulation.runUntil(180_000);
      expect(returned).toBeGreaterThan(50);
      expect(letIn / returned).toBeGreaterThanOrEqual(0.9);
      expect(Math.max(...told)).toBeLessThanOrEqual(60);
      expect(Math.min(...told)).toBeGreaterThanOrEqual(1);
    }
  });
});
