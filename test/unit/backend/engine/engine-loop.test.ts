import { describe, expect, it } from "vitest";
import { EngineLoop, type EngineLoopOptions } from "../../../../backend/engine/loop/engine-loop.ts";
import type { GenerationTask, TaskAccount, TaskSink } from "../../../../backend/engine/loop/generation-task.ts";
import { ManualClock } from "../../../support/manual-clock.ts";
import { bytesOf, EOS, ScriptedContext } from "../../../support/scripted-native.ts";

class RecordingSink implements TaskSink {
  readonly told: string[] = [];
  account: TaskAccount | null = null;
  started(cachedTokens: number): void {
    this.told.push(`started with ${cachedTokens}`);
  }
  token({ bytes }: { bytes: Uint8Array }): void {
    this.told.push(Buffer.from(bytes).toString());
  }
  promptChances(): void {
    this.told.push("chances");
  }
  sensed(): void {
    this.told.push("rows");
  }
  finished(account: TaskAccount): void {
    if (this.account !== null) throw new Error("told twice");
    this.account = account;
    this.told.push(account.reason);
  }
}

const task = (text: string, over: Partial<GenerationTask> = {}): GenerationTask => ({
  label: { requestId: text, attempt: 1 },
  labels: { salt: "project", editDigest: "", tokens: bytesOf(text) },
  countsPrompt: true,
  reuseLimit: text.length,
  maxTokens: 8,
  job: {
    ignoreEndOfGeneration: false,
    stopStrings: [],
    sampler: {
      seed: 0,
      temperature: 0,
      topK: 0,
      topP: 1,
      minP: 0,
      repeatPenalty: 1,
      frequencyPenalty: 0,
      presencePenalty: 0,
      penaltyWindow: -1,
      logitBias: [],
      allowedTokens: new Int32Array(0),
      grammar: "",
      grammarLazy: false,
      grammarTriggers: "",
    },
    logprobs: -1,
    promptLogprobs: false,
    renderedTokens: new Int32Array(0),
    edits: [],
    sensing: [],
    capture: [],
  },
  ...over,
});

function setUp(over: Partial<EngineLoopOptions> = {}) {
  const clock = new ManualClock();
  const loop = new EngineLoop({
    slots: 2,
    cellCount: 200,
    streams: null,
    maxPending: 2,
    reusesPrefixes: true,
    clock,
    accounts: null,
    onChange: () => undefined,
    onTokens: () => undefined,
    ...over,
  });
  const context = new ScriptedContext((events) => loop.onStep(events));
  loop.attach(context);
  const submit = (wish: GenerationTask) => {
    const sink = new RecordingSink();
    return { sink, ticket: loop.submit(wish, sink) };
  };
  return { loop, context, clock, submit };
}

describe("the engine loop", () => {
  it("tells how long the core owes a step, and that it owes none when nothing runs", () => {
    const { context, submit, loop, clock } = setUp();
    clock.advance(9_000);
    expect(loop.stalledMs).toBe(0);
    const { sink } = submit(task("hello"));
    clock.advance(700);
    expect(loop.stalledMs).toBe(700);
    context.step();
    clock.advance(30);
    expect(loop.stalledMs).toBe(30);
    while (sink.account === null) context.step();
    clock.advance(9_000);
    expect(loop.stalledMs).toBe(0);
  });

  it("tells a task its start, its tokens and its exact account", () => {
    const { context, submit, loop } = setUp();
    const { sink } = submit(task("hello"));
    while (sink.account === null) context.step();
    expect(sink.told).toEqual(["started with 0", "o", "k", "", "end_of_generation"]);
    expect(sink.account).toMatchObject({
      computedPromptTokens: 5,
      cachedPromptTokens: 0,
      computedCompletionTokens: 3,
      failure: null,
    });
    expect(loop.freeCells).toBe(200);
  });

  it("reuses the cells of prompt and answer, but not of the token that never went through the model", () => {
    const { context, submit } = setUp();
    const first = submit(task("hello"));
    while (first.sink.account === null) context.step();
    const next = Int32Array.of(...bytesOf("hellook"), EOS, ...bytesOf(" more"));
    submit(task("", { labels: { salt: "project", editDigest: "", tokens: next }, reuseLimit: next.length }));
    expect(context.submitted[1]).toMatchObject({ sequenceId: 0, copyFromSequenceId: 0, keepTokens: 7 });
  });

  it("reports as cached only what was not computed after all", () => {
    const { context, submit } = setUp();
    const first = submit(task("hello"));
    while (first.sink.account === null) context.step();
    context.losesKeptCells = true;
    const again = submit(task("hello"));
    while (again.sink.account === null) context.step();
    expect(context.submitted[1]?.keepTokens).toBe(4);
    expect(again.sink.account).toMatchObject({ computedPromptTokens: 5, cachedPromptTokens: 0 });
  });

  it("gives a sensing request all its rows however often it is asked", () => {
    const { context, submit } = setUp();
    for (let round = 0; round < 2; round += 1) {
      const { sink } = submit(task("hello", { reuseLimit: 0 }));
      while (sink.account === null) context.step();
    }
    expect(context.submitted.map(({ keepTokens }) => keepTokens)).toEqual([0, 0]);
  });

  it("computes every prompt anew where the model keeps a state instead of cells", () => {
    const { context, submit } = setUp({ reusesPrefixes: false });
    for (let round = 0; round < 2; round += 1) {
      const { sink } = submit(task("hello"));
      while (sink.account === null) context.step();
    }
    expect(context.submitted.map(({ keepTokens }) => keepTokens)).toEqual([0, 0]);
  });

  it("starts waiting tasks in the order in which they came and refuses what the queue cannot hold", () => {
    const { context, submit, loop } = setUp({ slots: 1 });
    const tasks = ["a", "b", "c"].map((text) => submit(task(text)));
    expect(loop.waitingCount).toBe(2);
    expect(() => submit(task("d"))).toThrow(expect.objectContaining({ code: "engine_busy", retryAfterSeconds: 5 }));
    while (tasks[2]?.sink.account === null) context.step();
    expect(context.submitted.map(({ tokens }) => tokens[0])).toEqual([97, 98, 99]);
  });

  it("holds a task back until its whole bound fits, so that no stream runs out of cells", () => {
    const { context, submit } = setUp({ cellCount: 20 });
    const first = submit(task("12345678"));
    const second = submit(task("abcdefgh"));
    expect(context.submitted).toHaveLength(1);
    while (first.sink.account === null) context.step();
    expect(context.submitted).toHaveLength(2);
    while (second.sink.account === null) context.step();
    expect(context.cleared).toEqual([0]);
  });

  it("cancels at once what waits and what runs, each with its own account, and lets the next one in", () => {
    const { context, submit, loop } = setUp({ slots: 1 });
    const runs = submit(task("runs"));
    const waits = submit(task("waits"));
    const next = submit(task("next"));
    waits.ticket.cancel();
    expect(waits.sink.account).toMatchObject({ reason: "cancelled", computedPromptTokens: 0 });
    context.step();
    runs.ticket.cancel();
    context.step();
    expect(runs.sink.account).toMatchObject({
      reason: "cancelled",
      computedPromptTokens: 4,
      computedCompletionTokens: 1,
    });
    expect(loop.running().map(({ label }) => label?.requestId)).toEqual(["next"]);
    runs.ticket.cancel();
    while (next.sink.account === null) context.step();
    expect(next.sink.account.reason).toBe("end_of_generation");
  });

  it("fails one task alone and trusts none of its cells", () => {
    const { context, submit } = setUp();
    const bad = submit(task("hello"));
    const good = submit(task("other"));
    context.step();
    context.failNext = "decode_failed";
    while (good.sink.account === null) context.step();
    expect(bad.sink.account).toMatchObject({ reason: "failed", failure: { code: "decode_failed" } });
    expect(good.sink.account.reason).toBe("end_of_generation");
    expect(context.cleared).toEqual([0]);
    submit(task("hello again"));
    expect(context.submitted[2]?.keepTokens).toBe(0);
  });

  it("turns a refusal of the native core into a failed account", () => {
    const { context, submit, loop } = setUp();
    context.submit = () => {
      throw Object.assign(new Error("job.tokens"), { code: "invalid_argument" });
    };
    const { sink } = submit(task("hello"));
    expect(sink.account).toMatchObject({ reason: "failed", failure: { code: "invalid_argument" } });
    expect(loop.freeCells).toBe(200);
  });

  it("is idle only when nothing runs and nothing waits", async () => {
    const { context, submit, loop } = setUp({ slots: 1 });
    context.reply = () => [EOS];
    submit(task("a"));
    submit(task("b"));
    let isIdle = false;
    const idle = loop.whenIdle().then(() => (isIdle = true));
    context.step();
    await Promise.resolve();
    expect(isIdle).toBe(false);
    context.step();
    await idle;
  });

  it("ends everything when it is told to", () => {
    const { context, submit, loop } = setUp({ slots: 1 });
    const sinks = ["a", "b", "c"].map((text) => submit(task(text)).sink);
    loop.cancelAll();
    context.step();
    expect(sinks.map(({ account }) => account?.reason)).toEqual(["cancelled", "cancelled", "cancelled"]);
  });
});

describe("further choices of a request", () => {
  const limited = { maxTokens: 8 };

  it("start when the first one's prompt is computed, and copy it from the running sequence", () => {
    const { context, loop, submit } = setUp({ slots: 3 });
    const leader = submit(task("hello", limited));
    const sinks = [new RecordingSink(), new RecordingSink()];
    for (const sink of sinks) loop.submitFurther(task("hello", limited), sink, leader.ticket);
    expect(context.submitted).toHaveLength(1);
    context.step();
    expect(
      context.submitted.slice(1).map(({ copyFromSequenceId, keepTokens }) => [copyFromSequenceId, keepTokens]),
    ).toEqual([
      [0, 4],
      [0, 4],
    ]);
    while (sinks.some(({ account }) => account === null)) context.step();
    expect(sinks.map(({ account }) => account?.reason)).toEqual(["end_of_generation", "end_of_generation"]);
    expect(loop.freeCells).toBe(200);
  });

  it("come before the queue, are no part of its bound, and are counted with the first one's prompt", () => {
    const { context, loop, submit } = setUp({ slots: 1, maxPending: 1 });
    const leader = submit(task("hello"));
    const further = new RecordingSink();
    loop.submitFurther(task("hello", { countsPrompt: false }), further, leader.ticket);
    const other = submit(task("other"));
    expect(loop.waitingCount).toBe(1);
    while (leader.sink.account === null) context.step();
    expect(loop.running()).toMatchObject([{ cachedPromptTokens: 0, computedPromptTokens: 0 }]);
    while (further.account === null) context.step();
    expect(other.sink.account).toBeNull();
    while (other.sink.account === null) context.step();
  });

  it("are cancelled while they wait for the prompt, and run on when the first one is", () => {
    const { context, loop, submit } = setUp({ slots: 2 });
    const leader = submit(task("hello"));
    const [gone, stays] = [new RecordingSink(), new RecordingSink()];
    const ticket = loop.submitFurther(task("hello"), gone, leader.ticket);
    loop.submitFurther(task("hello"), stays, leader.ticket);
    ticket.cancel();
    expect(gone.account?.reason).toBe("cancelled");
    leader.ticket.cancel();
    while (stays.account === null) context.step();
    expect(leader.sink.account?.reason).toBe("cancelled");
    expect(stays.account.reason).toBe("end_of_generation");
  });

  it("all end when everything is to", () => {
    const { context, loop, submit } = setUp({ slots: 1 });
    const leader = submit(task("hello"));
    const further = new RecordingSink();
    loop.submitFurther(task("hello"), further, leader.ticket);
    loop.cancelAll();
    context.step();
    expect([leader.sink.account?.reason, further.account?.reason]).toEqual(["cancelled", "cancelled"]);
  });
});
