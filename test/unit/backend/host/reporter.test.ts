import { beforeEach, describe, expect, it } from "vitest";
import { backOffWithJitterMs, reportTimes } from "../../../../backend/host/report-schedule.ts";
import { Reporter } from "../../../../backend/host/reporter.ts";
import { createLogger } from "../../../../shared/logging/logger.ts";
import type { Answer } from "../../../../shared/protocol/answer.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const ANSWER: Answer = {
  protocol: 1,
  edge: "edge-1",
  ack_seq: 0,
  ack_ended: [],
  ask_ended: [],
  edge_time: 0,
  keys: [],
  report_every_ms: 1_000,
  desired: null,
};

describe("the reporter", () => {
  let clock: ManualClock;
  let sentAtMs: number[];
  let answer: () => Promise<{ answer: Answer; more: boolean }>;
  let reporter: Reporter;
  let lines: string[];

  beforeEach(() => {
    clock = new ManualClock();
    sentAtMs = [];
    lines = [];
    answer = () => Promise.resolve({ answer: ANSWER, more: false });
    reporter = new Reporter({
      server: "http://edge",
      heartbeatMs: 1_000,
      reconnectBaseMs: 500,
      reconnectMaxMs: 4_000,
      clock,
      logger: createLogger({ level: "info", format: "json", clock, write: (line) => lines.push(line) }),
      random: () => 1,
      deliver: () => {
        sentAtMs.push(clock.monotonicMs());
        return answer();
      },
    });
    reporter.start();
  });

  /** Time in small steps, so that what a report's answer sets off happens in between. */
  const pass = async (ms: number): Promise<void> => {
    for (let passed = 0; passed < ms; passed += 10) {
      clock.advance(10);
      for (let turn = 0; turn < 5; turn++) await Promise.resolve();
    }
  };

  it("reports at once and then at each heartbeat", async () => {
    await pass(2_500);
    expect(sentAtMs).toEqual([0, 1_000, 2_000]);
  });

  it("reports a change soon, many changes together, and never twice within 100 ms", async () => {
    await pass(300);
    reporter.changed();
    reporter.changed();
    await pass(50);
    reporter.changed();
    await pass(300);
    expect(sentAtMs).toEqual([0, 300, 400]);
    await pass(1_000);
    expect(sentAtMs.at(-1)).toBe(1_400);
  });

  it("reports a change that came while a report was on its way", async () => {
    const held: (() => void)[] = [];
    answer = () =>
      new Promise((resolve) => {
        held.push(() => resolve({ answer: ANSWER, more: false }));
      });
    await pass(200);
    reporter.changed();
    await pass(200);
    expect(sentAtMs).toEqual([0]);
    held[0]?.();
    await pass(50);
    expect(sentAtMs).toHaveLength(2);
  });

  it("sends the rest at once when there was more than one report holds", async () => {
    answer = () => Promise.resolve({ answer: ANSWER, more: sentAtMs.length < 3 });
    await pass(500);
    expect(sentAtMs).toEqual([0, 100, 200]);
  });

  it("waits longer after each failure, changes or not, and is quick again afterwards", async () => {
    // Each failure is known one step of `pass` after its report was sent, and the delay counts from there.
    answer = () => Promise.reject(new Error("away"));
    await pass(600);
    reporter.changed();
    await pass(7_000);
    expect(sentAtMs).toEqual([0, 510, 1_510, 3_510, 7_510]);
    answer = () => Promise.resolve({ answer: ANSWER, more: false });
    await pass(5_500);
    expect(sentAtMs.slice(-2)).toEqual([11_510, 12_510]);
  });

  it("tries an edge that refuses connections in even steps for ten seconds, and then ever more rarely", async () => {
    answer = () => Promise.reject(Object.assign(new Error("refused"), { code: "ECONNREFUSED" }));
    await pass(20_000);
    const gaps = sentAtMs.map((atMs, place) => atMs - (sentAtMs[place - 1] ?? 0)).slice(1);
    expect(gaps.slice(0, 20)).toEqual(Array.from({ length: 20 }, (_, place) => (place === 0 ? 510 : 500)));
    expect(gaps.slice(-2)).toEqual([2_000, 4_000]);
  });

  it("waits for an edge that was never there with one word, and warns once when it stays away or goes away", async () => {
    const refusal = () => Promise.reject(Object.assign(new Error("refused"), { code: "ECONNREFUSED" }));
    const told = (word: string): number => lines.filter((line) => line.includes(word)).length;
    answer = refusal;
    await pass(5_000);
    expect([told("waiting for the edge"), told("not delivered")]).toEqual([1, 0]);
    await pass(15_000);
    expect([told("waiting for the edge"), told("not delivered")]).toEqual([1, 1]);
    answer = () => Promise.resolve({ answer: ANSWER, more: false });
    await pass(6_000);
    answer = refusal;
    await pass(3_000);
    expect([told("waiting for the edge"), told("not delivered")]).toEqual([1, 2]);
  });

  it("slows down when the edge asks for it", async () => {
    answer = () => Promise.resolve({ answer: { ...ANSWER, report_every_ms: 5_000 }, more: false });
    await pass(200);
    reporter.changed();
    await pass(9_000);
    expect(sentAtMs).toEqual([0, 500, 5_500]);
  });

  it("sends nothing after it was stopped", async () => {
    await pass(100);
    await reporter.stop();
    reporter.changed();
    await pass(5_000);
    expect(sentAtMs).toEqual([0]);
    expect(clock.pendingTimers).toBe(0);
  });
});

describe("the schedule of reports", () => {
  it("keeps the gap in the same measure to the heartbeat", () => {
    expect(reportTimes(1_000, 100)).toEqual({ everyMs: 1_000, gapMs: 100 });
    expect(reportTimes(1_000, 3_000)).toEqual({ everyMs: 3_000, gapMs: 300 });
    expect(reportTimes(100, 100)).toEqual({ everyMs: 100, gapMs: 100 });
  });

  it("spreads the delays over the upper half", () => {
    expect(backOffWithJitterMs(1, 500, 30_000, 0)).toBe(250);
    expect(backOffWithJitterMs(1, 500, 30_000, 1)).toBe(500);
    expect(backOffWithJitterMs(50, 500, 30_000, 1)).toBe(30_000);
  });
});
