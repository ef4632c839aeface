import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { STEP_RECORD_WORDS, type NativeModel } from "../../backend/native/binding.ts";
import { expectEveryStepChecked } from "../support/checked-steps.ts";
import type { JobOutcome } from "../support/native-harness.ts";
import { codeOf, DEMO_F32, NativeSession, openModel } from "../support/native-harness.ts";

const STREAMS = 8;

describe("continuous batching", () => {
  let model: NativeModel;
  let session: NativeSession;
  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    session = await NativeSession.open(model, { sequenceCount: STREAMS, cellCount: 4096, batchTokens: 32 });
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
  });

  const prompt = (n: number): Int32Array =>
    model.tokenize(`Story ${n}: ${"once upon a time in the snow, ".repeat(1 + (n % 9))}there was a`, true, false);
  const wish = (n: number) => ({ tokens: prompt(n), sequenceId: n % STREAMS, maxTokens: 24 });

  it("gives a request in a batch the tokens of its solo run", async () => {
    const alone: JobOutcome[] = [];
    for (let n = 0; n < STREAMS; n++) alone.push(await session.run(wish(n)));
    const together = await Promise.all(Array.from({ length: STREAMS }, (_, n) => session.run(wish(n))));
    for (const [n, outcome] of together.entries()) {
      expect(outcome.tokens).toEqual(alone[n]?.tokens);
      expect(outcome.tokenPositions).toEqual(outcome.tokens.map((_, i) => prompt(n).length + i));
    }
  });

  it("cuts a long prompt into chunks while running streams get a token every step", async () => {
    const tokensPerStep: number[] = [];
    const runner = session.start({ ...wish(0), maxTokens: 2000, ignoreEndOfGeneration: true });
    const long: Promise<JobOutcome>[] = [];
    let longRunning = false;
    session.onStep = (events) => {
      const owners = events.records.filter((_, word) => word % STEP_RECORD_WORDS === 0);
      if (longRunning) tokensPerStep.push(owners.filter((jobId) => jobId === runner.jobId).length);
      if (long.length === 0) {
        const tokens = new Int32Array(300).fill(300);
        long.push(session.run({ tokens, sequenceId: 1, maxTokens: 1 }));
      }
      const longEnded = events.finished.some(({ jobId }) => jobId !== runner.jobId);
      longRunning = events.prompts.some(({ jobId }) => jobId !== runner.jobId) && !longEnded;
      if (longEnded) session.context.cancel(runner.jobId);
    };
    await runner.outcome;
    session.onStep = () => undefined;
    const [chunked] = await Promise.all(long);
    // 32 rows a step at most, one of them the runner's; how many it may be is measured, but the prompt always goes on.
    const progress = chunked?.promptProgress ?? [];
    const chunks = progress.map((count, at) => count - (progress[at - 1] ?? 0));
    expect(progress.at(-1)).toBe(300);
    expect(Math.max(...chunks)).toBeLessThanOrEqual(31);
    expect(Math.min(...chunks.slice(0, -1))).toBeGreaterThanOrEqual(4);
    expect(tokensPerStep.length).toBeGreaterThanOrEqual(9);
    expect(tokensPerStep.every((count) => count === 1)).toBe(true);
  });

  it("lets the prompts of a burst fill its steps, and holds back one that comes once answers run", async () => {
    const wide = await NativeSession.open(model, { sequenceCount: STREAMS + 1, cellCount: 4608, batchTokens: 256 });
    const tokens = new Int32Array(60).fill(300);
    const progress: number[] = [];
    const late: Promise<JobOutcome>[] = [];
    let steps = 0;
    wide.onStep = ({ prompts }) => {
      progress.push(...prompts.map(({ computedTokens }) => computedTokens));
      if (steps++ !== 8) return;
      late.push(wide.run({ tokens: new Int32Array(240).fill(301), sequenceId: STREAMS, maxTokens: 1 }));
    };
    await Promise.all(
      Array.from({ length: STREAMS }, (_, sequenceId) =>
        wide.run({ tokens, sequenceId, maxTokens: 40, ignoreEndOfGeneration: true }),
      ),
    );
    // 480 rows, 256 a step with the answers that have begun: three steps, of which one or two cut a prompt in two.
    expect(progress.slice(0, STREAMS + 2).filter((computed) => computed === tokens.length).length).toBe(STREAMS);
    const [held] = await Promise.all(late);
    expect(held?.promptProgress[0]).toBeLessThan(240);
    await wide.context.dispose();
  });

  it("continues from kept cells as if it had computed them", async () => {
    const tokens = prompt(5);
    const fresh = await session.run({ tokens, sequenceId: 2, maxTokens: 20 });
    const reused = await session.run({ tokens, sequenceId: 2, maxTokens: 20, keepTokens: tokens.length - 1 });
    const copied = await session.run({
      tokens,
      sequenceId: 6,
      copyFromSequenceId: 2,
      maxTokens: 20,
      keepTokens: tokens.length - 4,
    });
    expect(reused.tokens).toEqual(fresh.tokens);
    expect(copied.tokens).toEqual(fresh.tokens);
    expect(reused.finished.computedPromptTokens).toBe(1);
    expect(copied.finished.computedPromptTokens).toBe(4);
  });

  it("computes the whole prompt when the cells to keep are not there", async () => {
    session.context.clearSequence(3);
    const tokens = prompt(3);
    const outcome = await session.run({ tokens, sequenceId: 3, maxTokens: 8, keepTokens: tokens.length - 1 });
    expect(outcome.finished.computedPromptTokens).toBe(tokens.length);
    expect(outcome.tokens).toEqual((await session.run({ tokens, sequenceId: 4, maxTokens: 8 })).tokens);
  });

  it("ends an aborted job before the next step and frees its sequence", async () => {
    const job = session.start({ tokens: prompt(1), sequenceId: 5, maxTokens: 1000, ignoreEndOfGeneration: true });
    let records = 0;
    session.onStep = (events) => {
      records += events.records.length;
      if (records > 0) session.context.cancel(job.jobId);
    };
    const { finished } = await job.outcome;
    session.onStep = () => undefined;
    expect(finished).toMatchObject({ reason: "cancelled", errorCode: null });
    expect(finished.computedCompletionTokens).toBeLessThan(1000);
    const next = await session.run({ tokens: prompt(1), sequenceId: 5, maxTokens: 4 });
    expect(next.finished.reason).toBe("length");
  });

  it("ignores an abort of a job that is unknown or has ended", () => {
    expect(() => {
      session.context.cancel(1);
      session.context.cancel(123_456);
    }).not.toThrow();
  });

  it("takes a fifty-first job after fifty mixed ones, a quarter of them aborted", async () => {
    const before = session.counters();
    const free = Array.from({ length: STREAMS }, (_, i) => i);
    const outcomes: JobOutcome[] = [];
    let next = 0;
    const worker = async (sequenceId: number): Promise<void> => {
      while (next < 50) {
        const n = next++;
        const { jobId, outcome } = session.start({ ...wish(n), sequenceId, maxTokens: 10 + (n % 20) });
        if (n % 4 === 0) session.context.cancel(jobId);
        outcomes.push(await outcome);
      }
    };
    await Promise.all(free.map(worker));
    expect(outcomes.length).toBe(50);
    expect(outcomes.filter(({ finished }) => finished.reason === "cancelled").length).toBeGreaterThanOrEqual(10);
    expect(outcomes.filter(({ finished }) => finished.reason === "failed")).toEqual([]);
    const last = await session.run(wish(51));
    expect(last.finished.errorCode).toBeNull();

    const after = session.counters();
    const sum = (pick: (outcome: JobOutcome) => number): number =>
      [...outcomes, last].reduce((total, outcome) => total + pick(outcome), 0);
    expect(after.promptTokens - before.promptTokens).toBe(sum(({ finished }) => finished.computedPromptTokens));
    expect(after.completionTokens - before.completionTokens).toBe(
      sum(({ finished }) => finished.computedCompletionTokens),
    );
    expectEveryStepChecked(before, after);
  });

  it("fails the youngest job when the cells run out and lets the older ones finish", async () => {
    const small = await NativeSession.open(model, {
      sequenceCount: 4,
      cellCount: 256,
      batchTokens: 64,
      kvStreams: false,
    });
    const tokens = new Int32Array(60).fill(300);
    const jobs = Array.from({ length: 4 }, (_, sequenceId) =>
      small.run({ tokens, sequenceId, maxTokens: 60, ignoreEndOfGeneration: true }),
    );
    const outcomes = await Promise.all(jobs);
    expect(outcomes[0]?.finished.reason).toBe("length");
    expect(outcomes[3]?.finished).toMatchObject({ reason: "failed", errorCode: "decode_failed" });
    for (let sequenceId = 0; sequenceId < 4; sequenceId++) small.context.clearSequence(sequenceId);
    expect((await small.run({ tokens, maxTokens: 5 })).finished.errorCode).toBeNull();
    await small.context.dispose();
  });

  it("fails the job whose own stream of cells is full, and no other", async () => {
    const streams = await NativeSession.open(model, {
      sequenceCount: 2,
      cellCount: 512,
      batchTokens: 64,
      kvStreams: true,
    });
    const wishOf = (sequenceId: number, maxTokens: number) =>
      streams.run({ tokens: prompt(1), sequenceId, maxTokens, ignoreEndOfGeneration: true });
    const [full, other] = await Promise.all([wishOf(0, 400), wishOf(1, 250 - prompt(1).length)]);
    expect(full.finished).toMatchObject({ reason: "failed", errorCode: "decode_failed" });
    expect(full.tokens.length).toBe(257 - prompt(1).length);
    expect(other.finished).toMatchObject({ reason: "length", errorCode: null });
    const after = await wishOf(0, 5);
    expect(after.tokens).toEqual(other.tokens.slice(0, 5));
    await streams.context.dispose();
  });

  it("copies the prompt of a sequence that still runs, and computes what is not there yet", async () => {
    const tokens = prompt(6);
    const alone = await session.run({ tokens, sequenceId: 5, maxTokens: 20 });
    const wishOf = { tokens, maxTokens: 20, ignoreEndOfGeneration: true };
    const plain = await session.run({ ...wishOf, sequenceId: 5 });
    const lender = session.start({ ...wishOf, sequenceId: 0, maxTokens: 60 });
    // Submitted in the same breath, so nothing of the lender's prompt is in its cells yet.
    const early = session.start({ ...wishOf, sequenceId: 1, copyFromSequenceId: 0, keepTokens: tokens.length - 1 });
    await early.outcome;
    const late = await session.run({ ...wishOf, sequenceId: 2, copyFromSequenceId: 0, keepTokens: tokens.length - 1 });
    expect(late.finished.computedPromptTokens).toBe(1);
    expect((await early.outcome).finished.computedPromptTokens).toBe(tokens.length);
    for (const outcome of [late, await early.outcome]) expect(outcome.tokens).toEqual(plain.tokens);
    expect((await lender.outcome).tokens.slice(0, alone.tokens.length)).toEqual(alone.tokens);
  });

  it("refuses jobs that contradict themselves or what is running", async () => {
    const tokens = prompt(0);
    const running = session.start({ tokens, sequenceId: 0, maxTokens: 100, ignoreEndOfGeneration: true });
    for (const wrong of [
      { tokens: new Int32Array() },
      { tokens: Int32Array.from([1, 99_999]) },
      { tokens, sequenceId: STREAMS },
      { tokens, sequenceId: 1, maxTokens: 0 },
      { tokens, sequenceId: 1, keepTokens: tokens.length },
      { tokens, sequenceId: 1, logprobs: 21 },
      { tokens, sequenceId: 1, stopStrings: [""] },
      { tokens, sequenceId: 0 },
      { tokens, sequenceId: 1, promptLogprobs: true },
      { tokens, sequenceId: 1, renderedTokens: Int32Array.of(99_999) },
    ]) {
      expect(await codeOf(() => session.start(wrong))).toBe("invalid_argument");
    }
    expect(await codeOf(() => session.context.clearSequence(0))).toBe("invalid_argument");
    session.context.cancel(running.jobId);
    await running.outcome;
  });
});
