import * as fc from "fast-check";
import { expect, it } from "vitest";
import { DEFAULT_DISPATCH_POLICY } from "../../edge/dispatch/settings.ts";
import type { ServedModel } from "../../edge/ports/fleet.ts";
import { manualBench, replica } from "../support/dispatch-bench.ts";
import { servedModel } from "../support/dispatch-fakes.ts";
import { delta, finish, usageChunk, type FakeExchange } from "../support/scripted-exchange.ts";

const models: readonly ServedModel[] = [
  { ...servedModel, fallbacks: ["spare"] },
  { ...servedModel, id: "spare", pool: "spare" },
];
/** Endpoints, whose requests need no signature, so that everything happens in the turn in which it is due. */
const pool = (prefix: string, count: number) =>
  Array.from({ length: count }, (_, at) =>
    replica(`${prefix}${at}/r`, { slots: 3, target: { kind: "endpoint", epoch: null } }),
  );

const byNumber = (left: number, right: number): number => left - right;

type Move = (machine: FakeExchange) => void;
const moves: readonly Move[] = [
  (machine) => machine.stream().data(delta("a"), finish("stop"), usageChunk(3, 1), "[DONE]").end(),
  (machine) => machine.stream().data(delta("a"), finish("stop"), usageChunk(3, 1), "[DONE]").end(),
  (machine) => void machine.stream(),
  (machine) => void machine.stream().data(delta("a")),
  (machine) => machine.stream().data(delta("a")).fail("closed_in_body"),
  (machine) => machine.fail("closed_before_headers"),
  (machine) => machine.fail("unreachable"),
  (machine) => machine.headers(503, { "retry-after": "1" }).text("{}").end(),
  (machine) => machine.headers(500).text("{}").end(),
  (machine) => machine.headers(400).text('{"error":{"message":"no"}}').end(),
  (machine) => machine.headers(200, { "content-type": "application/json" }).text('{"a":1}').end(),
];

const event = fc.oneof(
  { weight: 5, arbitrary: fc.record({ kind: fc.constant("ask" as const), stream: fc.boolean() }) },
  { weight: 8, arbitrary: fc.record({ kind: fc.constant("move" as const), pick: fc.nat(20), move: fc.nat(20) }) },
  { weight: 4, arbitrary: fc.record({ kind: fc.constant("wait" as const), ms: fc.constantFrom(1, 60, 400, 5_000) }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant("leave" as const), pick: fc.nat(20) }) },
);

it("whatever machines and clients do, every claim and reservation is given back once and one attempt at most is billed", async () => {
  let hedged = 0;
  let fellBack = 0;
  await fc.assert(
    fc.asyncProperty(fc.array(event, { minLength: 30, maxLength: 150 }), async (events) => {
      const policy = { ...DEFAULT_DISPATCH_POLICY, hedging: false };
      const { ask, clock, upstream, limits, ledger, inFlight, coordinator } = await manualBench({
        replicas: pool("a", 3),
        otherPools: { spare: pool("b", 2) },
        fleet: { resolve: (name) => Promise.resolve(models.find(({ id }) => id === name) ?? null) },
        settings: { policyOf: () => policy },
      });
      const turns = async (): Promise<void> => {
        for (let turn = 0; turn < 40; turn++) await Promise.resolve();
      };
      const asked: ReturnType<typeof ask>[] = [];
      const begin = (stream: boolean) => {
        const made = ask({ stream }, { requestId: `r${asked.length}`, ...(models[0] && { model: models[0] }) });
        asked.push(made);
        return made;
      };
      const open = () => upstream.exchanges.filter(({ aborted, over }) => !aborted && !over);
      // Enough streams for hedges to be known and earned.
      for (let warm = 0; warm < 60; warm++) {
        begin(true);
        await turns();
        clock.advance(50);
        for (const machine of open()) moves[0]?.(machine);
        await turns();
      }
      policy.hedging = true;
      for (const step of events) {
        if (step.kind === "ask") begin(step.stream);
        else if (step.kind === "wait") clock.advance(step.ms);
        else if (step.kind === "leave") asked[60 + step.pick]?.writer.leave();
        else {
          const machines = open();
          const machine = machines[step.pick % Math.max(1, machines.length)];
          if (machine !== undefined) moves[step.move % moves.length]?.(machine);
        }
        await turns();
      }
      // All is brought to an end by the limits of time alone.
      for (let minute = 0; minute < 45; minute++) {
        for (let second = 0; second < 60; second += 5) clock.advance(5_000);
        await turns();
      }
      await Promise.all(asked.map(({ done }) => done));
      for (const { writer } of asked) expect(writer.over || writer.closed).toBe(true);
      expect(await inFlight()).toBe(0);
      const stats = await coordinator.stats();
      for (const { queueDepthByBand } of stats)
        expect(Object.values(queueDepthByBand).every((depth) => depth === 0)).toBe(true);
      expect(upstream.exchanges.filter(({ aborted, over }) => !aborted && !over)).toEqual([]);
      expect(limits.settled.map(({ reservationId }) => reservationId).toSorted()).toEqual(
        limits.reserved.map(({ requestId }) => `r-${requestId}`).toSorted(),
      );
      expect(new Set(ledger.opened.map(({ requestId }) => requestId)).size).toBe(ledger.opened.length);
      expect(ledger.settled.map(({ requestId }) => requestId).toSorted()).toEqual(
        ledger.opened.map(({ requestId }) => requestId).toSorted(),
      );
      for (const { requestId, attempts, outcome } of ledger.settled) {
        const started = ledger.started.filter((one) => one.requestId === requestId).map(({ attempt }) => attempt);
        expect(attempts.map(({ attempt }) => attempt).toSorted(byNumber)).toEqual(started.toSorted(byNumber));
        const billed = attempts.filter(({ unbilledReason }) => unbilledReason === null);
        expect(billed.length).toBeLessThanOrEqual(1);
        expect(outcome !== "completed" || attempts.at(-1) === billed[0]).toBe(true);
        hedged += attempts.filter(({ unbilledReason }) => unbilledReason === "hedge").length;
      }
      fellBack += ledger.started.filter(({ served }) => served !== undefined).length;
      // Two of a hundred.
      const hedges = ledger.settled.flatMap(({ attempts }) => attempts).filter((one) => one.unbilledReason === "hedge");
      expect(hedges.length).toBeLessThanOrEqual(0.02 * asked.length + 1e-9);
    }),
    { numRuns: 25 },
  );
  // It has been about something.
  expect(hedged).toBeGreaterThan(3);
  expect(fellBack).toBeGreaterThan(3);
}, 120_000);
