import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { ResidualEdit, CapturePlan, NativeModel } from "../../backend/native/binding.ts";
import type { JobOutcome, JobWish } from "../support/native-harness.ts";
import { DEMO_Q8, NativeSession, openModel } from "../support/native-harness.ts";
import type { FixtureArchitecture } from "../support/random-model.ts";
import { randomModel } from "../support/random-model.ts";

const STREAMS = 10;
// Small, so that prompts are cut into chunks which share batches with running answers.
const BATCH_TOKENS = 24;
const MAX_TOKENS = 20;

const folder = mkdtempSync(join(tmpdir(), "steerage-canary-"));
afterAll(() => {
  rmSync(folder, { recursive: true });
});

function fixture(architecture: FixtureArchitecture): string {
  const path = join(folder, `${architecture}.gguf`);
  writeFileSync(path, randomModel(architecture, 11));
  return path;
}

/** Nobody else's vector has values at these coordinates, and no residual is as large. */
function canaryVector(width: number, stream: number): Float32Array {
  const vector = new Float32Array(width);
  vector[(3 * stream) % width] = 40 + stream;
  vector[(3 * stream + 1) % width] = -40.5 - stream;
  return vector;
}

interface Canary {
  readonly edits: readonly ResidualEdit[];
  readonly capture: readonly CapturePlan[];
  readonly tokens: Int32Array;
}

function canaryOf(model: NativeModel, stream: number): Canary {
  const { embeddingWidth, layerCount } = model.info;
  const text = `stream ${stream} tells ${"of the sea and the snow, ".repeat(1 + ((stream * 5) % 6))}once more`;
  const tokens = model.tokenize(text, true, false);
  const vector = canaryVector(embeddingWidth, stream);
  const last = layerCount - 1;
  const plain: ResidualEdit = { layer: 1, fromPosition: 0, toPosition: -1, vector };
  const kinds: ResidualEdit[][] = [
    [plain],
    [{ ...plain, fromPosition: tokens.length }],
    [],
    [{ ...plain, fromPosition: 5, toPosition: 20 }],
    [plain, { ...plain, layer: last }],
  ];
  const edits = kinds[stream % kinds.length] ?? [];
  // Some leave the last layer alone: there their rows are no outputs, so the graph drops them before the hook.
  const layers = [2, 3].includes(stream % kinds.length) ? [1] : [1, last];
  const capture = layers.flatMap((layer) =>
    (["pre_steering", "post_steering"] as const).map((readPoint) => ({
      layer,
      fromPosition: 0,
      toPosition: -1,
      readPoint,
    })),
  );
  return { edits, capture, tokens };
}

/** Post-steering minus pre-steering must be exactly the edits of this job, bit for bit, and nothing elsewhere. */
function expectOnlyItsOwnVector(canary: Canary, outcome: JobOutcome, firstPosition: number): void {
  const end = canary.tokens.length + outcome.tokens.length - 1;
  const editedRows = canary.edits.map(() => 0);
  for (let position = firstPosition; position < end; position++) {
    for (const [prePlan, { layer, readPoint }] of canary.capture.entries()) {
      if (readPoint === "post_steering") continue;
      const expected = Float32Array.from(outcome.captured.get(`${prePlan}:${position}`) ?? []);
      expect(expected.length).toBeGreaterThan(0);
      for (const [place, edit] of canary.edits.entries()) {
        const touched = position >= edit.fromPosition && (edit.toPosition < 0 || position < edit.toPosition);
        if (edit.layer !== layer || !touched) continue;
        editedRows[place] = (editedRows[place] ?? 0) + 1;
        for (const [i, value] of edit.vector.entries()) expected[i] = (expected[i] ?? 0) + value;
      }
      expect(outcome.captured.get(`${prePlan + 1}:${position}`)).toEqual(expected);
    }
  }
  expect([...outcome.finished.editedRows]).toEqual(editedRows);
}

function expectSameStory(actual: JobOutcome, alone: JobOutcome, firstPosition: number): void {
  expect(actual.tokens).toEqual(alone.tokens);
  for (const [key, row] of alone.captured) {
    if (Number(key.split(":")[1]) < firstPosition) continue;
    const other = actual.captured.get(key) ?? new Float32Array();
    expect(other.length).toBe(row.length);
    const differences = row.map((value, i) => Math.abs((other[i] ?? Number.NaN) - value));
    // A neighbour's vector would be off by 40 or more; a batch of another shape rounds differently, most of all with
    // quantised weights.
    expect(Math.max(...differences)).toBeLessThan(1);
  }
}

describe.each([
  ["the demo model", () => DEMO_Q8],
  ["a llama-shaped model", () => fixture("llama")],
  ["a gemma2-shaped model with a sliding window", () => fixture("gemma2")],
  ["a qwen2-shaped model", () => fixture("qwen2")],
  ["a gpt2-shaped model", () => fixture("gpt2")],
])("row ownership on %s", (_, path) => {
  let model: NativeModel;
  let session: NativeSession;
  const alone: JobOutcome[] = [];
  const wish = (stream: number): JobWish => {
    const { tokens, edits, capture } = canaryOf(model, stream);
    const sequenceId = stream % STREAMS;
    return { tokens, edits, capture, sequenceId, maxTokens: MAX_TOKENS, ignoreEndOfGeneration: true };
  };

  beforeAll(async () => {
    model = await openModel(path());
    const options = { sequenceCount: STREAMS + 2, batchTokens: BATCH_TOKENS, cellCount: 8192 };
    const soloSession = await NativeSession.open(model, options);
    for (let stream = 0; stream < STREAMS; stream++) alone.push(await soloSession.run(wish(stream)));
    await soloSession.context.dispose();
    session = await NativeSession.open(model, options);
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
  });

  const aloneOf = (stream: number): JobOutcome => alone[stream] ?? expect.fail(`no solo run of stream ${stream}`);

  it("can be hooked at all", () => {
    expect(session.context.hookRefusal).toBeNull();
  });

  it("gives every concurrent stream its own vector and nobody else's, with aborts in between", async () => {
    const running = Array.from({ length: STREAMS }, (_unused, stream) => session.run(wish(stream)));
    const doomed = [STREAMS, STREAMS + 1].map((sequenceId) =>
      session.start({ ...wish(0), sequenceId, maxTokens: 1000 }),
    );
    let steps = 0;
    session.onStep = () => {
      steps++;
      if (steps === 7 || steps === 15) session.context.cancel(doomed[steps === 7 ? 0 : 1]?.jobId ?? 0);
    };
    const outcomes = await Promise.all(running);
    const cancelled = await Promise.all(doomed.map(async ({ outcome }) => outcome));
    expect(cancelled.map(({ finished }) => finished.reason)).toEqual(["cancelled", "cancelled"]);
    for (const [stream, outcome] of outcomes.entries()) {
      expect(outcome.finished).toMatchObject({ reason: "length", errorCode: null });
      expectOnlyItsOwnVector(canaryOf(model, stream), outcome, 0);
      expectSameStory(outcome, aloneOf(stream), 0);
    }
  });

  it("keeps that when sequences reuse cells of each other and of themselves", async () => {
    const outcomes = await Promise.all(
      Array.from({ length: STREAMS / 2 }, async (_unused, half) => {
        // Even streams go on in their own cells; the odd sequences take over an even stream's prefix and edits.
        const stream = 2 * half;
        const keepTokens = canaryOf(model, stream).tokens.length - 3;
        const shared = { ...wish(stream), keepTokens, copyFromSequenceId: stream, sequenceId: stream + 1 };
        const copied = await session.run(shared);
        const reused = await session.run({ ...shared, sequenceId: stream });
        return { stream, keepTokens, copied, reused };
      }),
    );
    for (const { stream, keepTokens, copied, reused } of outcomes) {
      const { length } = canaryOf(model, stream).tokens;
      for (const outcome of [copied, reused]) {
        const computed = outcome.finished.computedPromptTokens;
        // A sliding-window model may have overwritten the kept cells; then the whole prompt must have been computed.
        expect(model.info.slidingWindow > 0 ? [3, length] : [3]).toContain(computed);
        const firstPosition = computed === 3 ? keepTokens : 0;
        expect(outcome.finished).toMatchObject({ reason: "length", errorMessage: null });
        expectOnlyItsOwnVector(canaryOf(model, stream), outcome, firstPosition);
        expectSameStory(outcome, aloneOf(stream), firstPosition);
      }
    }
  });

  it("compares token ids and positions of every micro-batch", () => {
    const { steps, ownershipChecks, hookCalls } = session.counters();
    expect(ownershipChecks).toBeGreaterThanOrEqual(steps);
    expect(hookCalls).toBeGreaterThan(steps);
  });
});
