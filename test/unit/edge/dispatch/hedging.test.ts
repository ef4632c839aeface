import { describe, expect, it, vi } from "vitest";
import { Hedges } from "../../../../edge/dispatch/attempts/hedging.ts";
import { DEFAULT_DISPATCH_POLICY } from "../../../../edge/dispatch/settings.ts";
import { manualBench, replica } from "../../../support/dispatch-bench.ts";
import { RecordingLimits } from "../../../support/dispatch-fakes.ts";
import { delta, finish, usageChunk, type FakeExchange } from "../../../support/scripted-exchange.ts";

/** Endpoints, whose requests need no signature and so are sent in the same turn. */
const three = ["a/r", "b/r", "c/r"].map((key) => replica(key, { target: { kind: "endpoint", epoch: null } }));
const answered = (machine: FakeExchange, text = "x"): void =>
  machine.stream().data(delta(text), finish("stop"), usageChunk(3, 1), "[DONE]").end();

/** A model of which some streams are known, each with its first token after 100 ms. */
async function bench(options: Parameters<typeof manualBench>[0] = {}, hedging = true, known = 100) {
  const policy = { ...DEFAULT_DISPATCH_POLICY, hedging: false };
  const made = await manualBench({ replicas: three, settings: { policyOf: () => policy }, ...options });
  for (let turn = 0; turn < known; turn++) {
    const { done } = made.ask({ stream: true }, { requestId: `warm-${turn}` });
    const machine = await made.exchange(turn);
    made.clock.advance(100);
    answered(machine);
    await done;
  }
  policy.hedging = hedging;
  const begin = (body: Record<string, unknown> = { stream: true }) => made.ask(body, { requestId: "slow" });
  const settled = () => made.ledger.settled.find(({ requestId }) => requestId === "slow");
  /** Lets promises run that wait for nothing. */
  const turns = async (): Promise<void> => {
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
  };
  return { ...made, begin, settled, turns };
}

describe("a stream that is slow to begin", () => {
  it("is sent to a second machine; the first to begin answers, the other is cancelled at once and not billed", async () => {
    const { begin, exchange, clock, ledger, limits, metrics, inFlight, settled, coordinator } = await bench();
    const released = vi.spyOn(coordinator, "settle");
    const { writer, done } = begin();
    const slow = await exchange(100);
    clock.advance(100);
    const fast = await exchange(101);
    expect(fast.request.url).not.toBe(slow.request.url);
    expect(await inFlight()).toBe(2);
    slow.stream();
    expect(writer.started).toBe(false);
    fast.stream().data(delta("hello"));
    expect(slow.aborted).toBe(true);
    fast.data(finish("stop"), usageChunk(3, 1), "[DONE]").end();
    await done;
    expect(writer.text).toContain("hello");
    expect(writer.headers["x-steerage-route"]).toMatch(/;attempts=2$/);
    expect(settled()).toMatchObject({
      outcome: "completed",
      attempts: [
        { attempt: 1, unbilledReason: "hedge" },
        { attempt: 2, unbilledReason: null, counts: { promptTokens: 3, completionTokens: 1 } },
      ],
    });
    expect(ledger.opened.filter(({ requestId }) => requestId === "slow")).toHaveLength(1);
    expect(metrics.ended.at(-1)).toMatchObject({ attempts: [{ end: "lost_race" }, { end: "answered" }] });
    expect(limits.settled.at(-1)).toMatchObject({ totalTokens: 4 });
    expect(limits.settled).toHaveLength(101);
    expect(await inFlight()).toBe(0);
    // Between projects it counts once too.
    expect(released.mock.calls.map(([{ claimId, tokens }]) => [claimId, tokens?.completionTokens])).toEqual([
      ["slow.1", 0],
      ["slow.2", 1],
    ]);
  });

  it("is answered by the first machine if that begins after all, and the second is the one cancelled", async () => {
    const { begin, exchange, clock, inFlight, settled } = await bench();
    const { writer, done } = begin();
    const slow = await exchange(100);
    clock.advance(100);
    const second = await exchange(101);
    answered(slow, "mine");
    await done;
    expect(second.aborted).toBe(true);
    expect(writer.text).toContain("mine");
    expect(settled()?.attempts).toMatchObject([
      { attempt: 2, unbilledReason: "hedge" },
      { attempt: 1, unbilledReason: null },
    ]);
    expect(await inFlight()).toBe(0);
  });

  it("is answered by whichever is left when the other fails", async () => {
    for (const failing of [100, 101]) {
      const { begin, exchange, clock, inFlight, settled } = await bench();
      const { writer, done } = begin();
      await exchange(100);
      clock.advance(100);
      await exchange(101);
      (await exchange(failing)).fail("closed_before_headers");
      answered(await exchange(201 - failing), "left");
      await done;
      expect(writer.text).toContain("left");
      expect(settled()).toMatchObject({ outcome: "completed" });
      expect(settled()?.attempts.at(-1)).toMatchObject({ unbilledReason: null });
      expect(settled()?.attempts.filter(({ unbilledReason }) => unbilledReason === null)).toHaveLength(1);
      expect(await inFlight()).toBe(0);
    }
  });

  it("is tried on a third machine when both fail", async () => {
    const { begin, exchange, clock, inFlight } = await bench();
    const { writer, done } = begin();
    const one = await exchange(100);
    clock.advance(100);
    const two = await exchange(101);
    two.fail("closed_before_headers");
    one.fail("closed_before_headers");
    const last = await exchange(102);
    expect(new Set([one, two, last].map(({ request }) => request.url)).size).toBe(3);
    answered(last, "third");
    await done;
    expect(writer.text).toContain("third");
    expect(await inFlight()).toBe(0);
  });

  it("leaves nothing behind when the client goes while both run", async () => {
    const { begin, exchange, clock, inFlight, settled } = await bench();
    const { writer, done } = begin();
    const one = await exchange(100);
    clock.advance(100);
    const two = await exchange(101);
    writer.leave();
    expect([one.aborted, two.aborted]).toEqual([true, true]);
    await done;
    expect(settled()).toMatchObject({ outcome: "cancelled" });
    expect(await inFlight()).toBe(0);
  });
});

describe("no second machine is asked", () => {
  const isAskedAlone = async (made: Awaited<ReturnType<typeof bench>>, body?: Record<string, unknown>) => {
    const before = made.upstream.exchanges.length;
    made.begin(body);
    await made.exchange(before);
    made.clock.advance(5_000);
    await made.turns();
    return made.upstream.exchanges.length === before + 1;
  };

  it("where the profile does not say so, for whole answers, before enough is known, or without another machine", async () => {
    expect(await isAskedAlone(await bench({}, false))).toBe(true);
    expect(await isAskedAlone(await bench(), {})).toBe(true);
    expect(await isAskedAlone(await bench({ replicas: [replica("a/r", { slots: 20 })] }))).toBe(true);
    const young = await manualBench({
      replicas: three,
      settings: { policyOf: () => ({ ...DEFAULT_DISPATCH_POLICY, hedging: true }) },
    });
    young.ask({ stream: true });
    await young.exchange(0);
    young.clock.advance(5_000);
    for (let turn = 0; turn < 20; turn++) await Promise.resolve();
    expect(young.upstream.exchanges).toHaveLength(1);
  });

  it("while the pool is a third loaded", async () => {
    const made = await bench();
    for (let busy = 0; busy < 3; busy++) made.ask({}, { requestId: `busy-${busy}` });
    await made.exchange(102);
    // With the slow one four of twelve slots are taken.
    expect(await isAskedAlone(made)).toBe(true);
  });

  it("on account of requests that the limits refused", async () => {
    const made = await bench({}, true, 30);
    made.limits.refusal = RecordingLimits.refusing("rate_limit_exceeded");
    for (let turn = 0; turn < 50; turn++) await made.ask({ stream: true }, { requestId: `refused-${turn}` }).done;
    made.limits.refusal = null;
    expect(await isAskedAlone(made)).toBe(true);
  });

  it("for more than two of a hundred requests", async () => {
    const { ask, exchange, clock, upstream, turns } = await bench();
    // With nothing in hand: both that were saved up go first.
    const before = upstream.exchanges.length;
    const seen = new Set<FakeExchange>();
    for (let turn = 0; turn < 200; turn++) {
      const { done } = ask({ stream: true }, { requestId: `r${turn}` });
      await exchange(before + seen.size);
      clock.advance(101);
      await turns();
      for (const machine of upstream.exchanges.slice(before)) {
        if (seen.has(machine)) continue;
        seen.add(machine);
        answered(machine);
      }
      await done;
    }
    const hedges = seen.size - 200;
    expect(hedges).toBeGreaterThanOrEqual(4);
    expect(hedges).toBeLessThanOrEqual(0.02 * 300);
  });
});

describe("what counts as slow", () => {
  it("is what 95 of 100 lately did not take, by model, and forgets", () => {
    const hedges = new Hedges();
    for (let ms = 1; ms <= 19; ms++) hedges.firstToken("m", ms);
    expect(hedges.slowAfterMs("m")).toBeNull();
    for (let ms = 20; ms <= 100; ms++) hedges.firstToken("m", ms);
    expect(hedges.slowAfterMs("m")).toBe(95);
    expect(hedges.slowAfterMs("other")).toBeNull();
    for (let made = 0; made < 200; made++) hedges.firstToken("m", 7);
    expect(hedges.slowAfterMs("m")).toBe(7);
  });

  it("counts the latest 200 alone, in whatever order they came", () => {
    const hedges = new Hedges();
    const all = Array.from({ length: 523 }, (_, place) => (place * 7_919) % 211);
    for (const [place, ms] of all.entries()) {
      hedges.firstToken("m", ms);
      const latest = all.slice(Math.max(0, place - 199), place + 1).toSorted((left, right) => left - right);
      const expected = latest.length < 20 ? null : latest[Math.ceil(0.95 * latest.length) - 1];
      expect(hedges.slowAfterMs("m")).toBe(expected);
    }
  });
});
