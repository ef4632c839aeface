import { describe, expect, it } from "vitest";
import { EmbeddingQueue } from "../../../../backend/engine/embedding/embedding-queue.ts";
import { EventHub } from "../../../../backend/engine/events/event-hub.ts";
import { engineLoad } from "../../../../backend/engine/events/engine-load.ts";
import { LoadReporter } from "../../../../backend/engine/events/load-reporter.ts";
import { RateMeter } from "../../../../backend/engine/events/rate-meter.ts";
import { RequestAccount } from "../../../../backend/engine/events/request-account.ts";
import { threadCount } from "../../../../backend/engine/load/thread-count.ts";
import { engineEventSchema, type EngineEnded, type EngineReady } from "../../../../backend/ports/engine-events.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const ready: EngineReady = {
  type: "ready",
  model: "m",
  engine: "native",
  slots: 1,
  context_length: 1,
  max_output: null,
  capabilities: [],
  saes: [],
};
const ended = (requestId: string): EngineEnded => ({
  type: "ended",
  request_id: requestId,
  attempt: 1,
  computed_prompt: 0,
  cached_prompt: 0,
  computed_completion: 0,
  outcome: "completed",
});
const idleLoad = engineLoad({
  running: [],
  waiting: 0,
  freeCells: 1,
  cellCount: 1,
  tokensPerSecond: 0,
  promptTokensPerSecond: 0,
  speculation: null,
});

const typesOf = (lines: readonly string[]) =>
  lines.map((line) => {
    const event = engineEventSchema.parse(JSON.parse(line));
    return event.type === "ended" ? event.request_id : event.type;
  });

describe("the event hub", () => {
  it("begins every connection with ready and keeps accounts that nobody heard, once", () => {
    const hub = new EventHub(ready);
    hub.publish(ended("a"));
    hub.publish(idleLoad);
    const first: string[] = [];
    const leave = hub.connect((line) => first.push(line));
    hub.publish(ended("b"));
    leave();
    hub.publish(ended("c"));
    const second: string[] = [];
    hub.connect((line) => second.push(line));
    expect(typesOf(first)).toEqual(["ready", "a", "b"]);
    expect(typesOf(second)).toEqual(["ready", "c"]);
  });

  it("tells guessed tokens of an engine that guesses, and says nothing of them for one that does not", () => {
    const load = { running: [], waiting: 0, freeCells: 1, cellCount: 1, tokensPerSecond: 0, promptTokensPerSecond: 0 };
    const counts = { drafted: 9, accepted: 4, draft_model: 30 };
    expect(engineEventSchema.parse(engineLoad({ ...load, speculation: counts }))).toMatchObject({
      speculation: counts,
    });
    expect(engineLoad({ ...load, speculation: null })).not.toHaveProperty("speculation");
  });

  it("lets only loads be dropped by a slow host", () => {
    const hub = new EventHub(ready);
    const droppable: boolean[] = [];
    hub.connect((_, mayDrop) => droppable.push(mayDrop));
    hub.publish(idleLoad);
    hub.publish(ended("a"));
    expect(droppable).toEqual([false, true, false]);
  });
});

const setUp = () => {
  const clock = new ManualClock();
  const at: number[] = [];
  const reporter = new LoadReporter(
    clock,
    () => idleLoad,
    () => at.push(clock.monotonicMs()),
  );
  reporter.start();
  return { clock, at, reporter };
};

describe("the load reporter", () => {
  it("publishes once a second when nothing changes", () => {
    const { clock, at } = setUp();
    clock.advance(3_500);
    expect(at).toEqual([0, 1_000, 2_000, 3_000]);
  });
  it("publishes a burst of changes as one report, at most every 100 ms", () => {
    const { clock, at, reporter } = setUp();
    for (let ms = 0; ms < 250; ms += 10) {
      reporter.changed();
      clock.advance(10);
    }
    expect(at).toEqual([0, 100, 200]);
    clock.advance(50);
    expect(at).toEqual([0, 100, 200, 300]);
  });
  it("publishes a change after silence at once", () => {
    const { clock, at, reporter } = setUp();
    clock.advance(500);
    reporter.changed();
    clock.advance(0);
    expect(at).toEqual([0, 500]);
  });
  it("is silent after its stop", () => {
    const { clock, at, reporter } = setUp();
    reporter.stop();
    reporter.changed();
    clock.advance(5_000);
    expect(at).toEqual([0]);
  });
});

describe("an account", () => {
  it("is told once, with the first counts", () => {
    const told: EngineEnded[] = [];
    const account = new RequestAccount({ requestId: "r", attempt: 2 }, (event) => told.push(event));
    account.end("cancelled", { computed_prompt: 7 });
    account.end("failed");
    expect(told).toMatchObject([{ request_id: "r", attempt: 2, computed_prompt: 7, outcome: "cancelled" }]);
  });
  it("is not told for a request without an id", () => {
    const account = new RequestAccount(null, () => expect.unreachable());
    account.end("completed");
  });
});

describe("a rate", () => {
  it("is measured over the last five seconds, and a young burst over at least one", () => {
    const meter = new RateMeter();
    meter.record(50, 10_000);
    expect(meter.perSecond(10_400)).toBe(50);
    meter.record(50, 11_000);
    expect(meter.perSecond(12_000)).toBe(50);
    expect(meter.perSecond(16_500)).toBe(0);
  });
});

const vector = (input: Int32Array) => Float32Array.of(3 * input.length, 4 * input.length);

const inputList = (count: number) => Array.from({ length: count }, () => Int32Array.of(1, 2));

const queueOf = (calls: number[], maxPending = 1) =>
  new EmbeddingQueue(
    () =>
      Promise.resolve({
        embed: async (inputs) => {
          calls.push(inputs.length);
          await Promise.resolve();
          return inputs.map(vector);
        },
        dispose: () => Promise.resolve(),
      }),
    { maxPending, inputsPerCall: 16 },
  );

const task = (count: number, over: Partial<Parameters<EmbeddingQueue["embed"]>[0]> = {}) => ({
  inputs: inputList(count),
  pooling: "mean" as const,
  onProgress: () => undefined,
  signal: new AbortController().signal,
  ...over,
});

describe("the threads of a step", () => {
  it.each([
    ["what was asked", [3, 1_000_000], 3],
    ["one for a very small model", [0, 918_656], 1],
    ["the physical cores for any other", [0, 85_000_000], 8],
  ] as const)("are %s", (_, [asked, parameters], threads) => {
    expect(threadCount(asked, parameters, 8)).toBe(threads);
  });
});

describe("the embedding queue", () => {
  it("lets requests take turns and gives vectors of unit length in order", async () => {
    const calls: number[] = [];
    const queue = queueOf(calls);
    const [long, short] = await Promise.all([queue.embed(task(40)), queue.embed(task(1))]);
    expect(calls).toEqual([16, 1, 16, 8]);
    expect(long).toHaveLength(40);
    expect(Math.hypot(...(short[0] ?? []))).toBeCloseTo(1);
  });
  it("stops between calls when its request is cancelled", async () => {
    const calls: number[] = [];
    const queue = queueOf(calls);
    const left = new AbortController();
    const progress: number[] = [];
    const failed = queue.embed(
      task(40, {
        signal: left.signal,
        onProgress: (tokens) => {
          progress.push(tokens);
          left.abort();
        },
      }),
    );
    await expect(failed).rejects.toThrow(/abort/u);
    expect(calls).toEqual([16]);
    expect(progress).toEqual([32]);
  });
  it("refuses more than may wait", async () => {
    const queue = queueOf([], 0);
    const first = queue.embed(task(1));
    await expect(queue.embed(task(1))).rejects.toMatchObject({ code: "engine_busy" });
    await first;
  });
  it("opens an embedder for every pooling, and a longer one only when an input needs it", async () => {
    const opened: string[] = [];
    const queue = new EmbeddingQueue(
      ({ pooling, contextLength }) => {
        opened.push(`open ${pooling} ${contextLength}`);
        return Promise.resolve({
          embed: (inputs) => Promise.resolve(inputs.map(vector)),
          dispose: () => {
            opened.push(`close ${pooling} ${contextLength}`);
            return Promise.resolve();
          },
        });
      },
      { maxPending: 1, inputsPerCall: 1 },
    );
    for (const pooling of ["mean", "last", "mean"] as const) await queue.embed(task(1, { pooling }));
    for (const length of [2_048, 5_000, 100]) await queue.embed(task(0, { inputs: [new Int32Array(length)] }));
    expect(opened).toEqual(["open mean 2048", "open last 2048", "close mean 2048", "open mean 8192"]);
    await queue.dispose();
    expect(opened.slice(4).toSorted()).toEqual(["close last 2048", "close mean 8192"]);
  });
  it("tries again to open a context that could not be made", async () => {
    let opened = 0;
    const queue = new EmbeddingQueue(
      () => {
        opened += 1;
        return Promise.reject(new Error("no memory"));
      },
      { maxPending: 1, inputsPerCall: 1 },
    );
    await expect(queue.embed(task(1))).rejects.toThrow("no memory");
    await expect(queue.embed(task(1))).rejects.toThrow("no memory");
    expect(opened).toBe(2);
  });
});
