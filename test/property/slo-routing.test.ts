import { describe, expect, it } from "vitest";
import { DEFAULT_POLICY, type PoolPolicy } from "../../edge/routing/policy.ts";
import { replica } from "../support/dispatch-bench.ts";
import { PoolSimulation, seeded } from "../support/pool-simulation.ts";

const PROMISED_MS = 500;
const ENDS_AT_MS = 120_000;
const RECOVERS_AT_MS = 60_000;

/** Two machines that take equally long for a whole answer, of which one is late to begin for the first minute. */
function play(policy: PoolPolicy) {
  const random = seeded(5);
  const simulation = new PoolSimulation(
    ["prompt/r", "late/r"].map((key) => replica(key, { slots: 16 })),
    { policy },
  );
  const served: { readonly atMs: number; readonly key: string; readonly ttftMs: number }[] = [];
  for (let atMs = 0; atMs < ENDS_AT_MS; atMs += 400 * random()) {
    simulation.at(atMs, () => {
      const ttftOf = (key: string): number =>
        (key === "late/r" && simulation.nowMs < RECOVERS_AT_MS ? 1_500 : 100) * (0.8 + 0.4 * random());
      let ttftMs = 0;
      simulation.admit({
        serviceMs: 2_000 * (0.8 + 0.4 * random()),
        used: { promptTokens: 100, cachedTokens: 0, completionTokens: 100 },
        onGranted: ({ target, queuedMs }) => {
          ttftMs = ttftOf(target.key);
          served.push({ atMs: simulation.nowMs, key: target.key, ttftMs: queuedMs + ttftMs });
        },
        pace: () => ({ ttftMs, tpotMs: 10 }),
      });
    });
  }
  simulation.runUntil(2 * ENDS_AT_MS);
  const early = served.filter(({ atMs }) => atMs < RECOVERS_AT_MS);
  // A while after the recovery, which the measure must first have faded to find out.
  const later = served.filter(({ atMs }) => atMs > ENDS_AT_MS - 20_000);
  return {
    kept: early.filter(({ ttftMs }) => ttftMs <= PROMISED_MS).length / early.length,
    backAtTheLate: later.filter(({ key }) => key === "late/r").length / later.length,
    tries: early.filter(({ key }) => key === "late/r").length,
  };
}

describe("a promised time to the first token", () => {
  const slo = { ttftMs: PROMISED_MS, tpotMs: null };

  it("is kept more often when machines that miss it are chosen less, and they are back when they keep it again", () => {
    const without = play(DEFAULT_POLICY);
    const promised = play({ ...DEFAULT_POLICY, slo });
    expect(without.kept).toBeLessThan(0.6);
    expect(promised.kept).toBeGreaterThan(without.kept + 0.2);
    // It is tried now and then, or nobody would learn that it is well again.
    expect(promised.tries).toBeGreaterThan(5);
    expect(promised.backAtTheLate).toBeGreaterThan(0.3);
  });

  it("weighs as much as the profile says, down to nothing", () => {
    const kept = (weight: number) => play({ ...DEFAULT_POLICY, weights: { load: 1, kv: 1, slo: weight }, slo }).kept;
    const [none, plain, heavy] = [kept(0), kept(1), kept(5)];
    expect(none).toBeLessThan(0.6);
    expect(plain).toBeGreaterThan(none);
    expect(heavy).toBeGreaterThanOrEqual(plain);
  });
});
