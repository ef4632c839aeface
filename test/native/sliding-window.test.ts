import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeModel } from "../../backend/native/binding.ts";
import type { JobOutcome } from "../support/native-harness.ts";
import { NativeSession, openModel } from "../support/native-harness.ts";
import { FIXTURE_SHAPE, randomModel } from "../support/random-model.ts";

const PROMPT_TOKENS = 60;
const OVERWRITTEN = 40;
const EARLIER = 100;

function tokensOf(count: number, seed: number): Int32Array {
  return Int32Array.from({ length: count }, (_, i) => (i * 37 + seed * 101) % 250);
}

describe("prefix reuse on a sliding-window model", () => {
  const folder = mkdtempSync(join(tmpdir(), "steerage-window-"));
  let model: NativeModel;
  beforeAll(async () => {
    const path = join(folder, "gemma2.gguf");
    writeFileSync(path, randomModel("gemma2", 23));
    model = await openModel(path);
  });
  afterAll(async () => {
    await model.dispose();
    rmSync(folder, { recursive: true });
  });

  const prompt = tokensOf(PROMPT_TOKENS, 1);
  const capture = [{ layer: 2, fromPosition: PROMPT_TOKENS, toPosition: -1, readPoint: "pre_steering" as const }];
  const lastRow = ({ captured }: JobOutcome): number[] => [...(captured.get(`0:${PROMPT_TOKENS}`) ?? [])];

  /** Sequence 0 holds the prompt, but others have taken the cells of its first positions that left the window. */
  async function partlyOverwritten(): Promise<NativeSession> {
    const session = await NativeSession.open(model, {
      sequenceCount: 4,
      cellCount: 256,
      batchTokens: 256,
      kvStreams: false,
    });
    await session.run({ tokens: tokensOf(EARLIER, 2), sequenceId: 1, maxTokens: 1 });
    await session.run({ tokens: prompt, sequenceId: 0, maxTokens: 1 });
    session.context.clearSequence(1);
    // Takes the cells that came free, then those of the prompt behind them.
    await session.run({ tokens: tokensOf(EARLIER + OVERWRITTEN, 3), sequenceId: 2, maxTokens: 1 });
    return session;
  }

  it.each([
    { keepTokens: OVERWRITTEN + FIXTURE_SHAPE.slidingWindow - 3, computed: PROMPT_TOKENS, what: "computes all again" },
    {
      keepTokens: OVERWRITTEN + FIXTURE_SHAPE.slidingWindow + 2,
      computed: PROMPT_TOKENS - OVERWRITTEN - FIXTURE_SHAPE.slidingWindow - 2,
      what: "reuses the cells",
    },
  ])("$what when it keeps $keepTokens of 60 and the first 40 are overwritten", async ({ keepTokens, computed }) => {
    const session = await partlyOverwritten();
    const wish = { tokens: prompt, maxTokens: 2, capture };
    const outcome = await session.run({ ...wish, sequenceId: 0, keepTokens });
    expect(outcome.finished.computedPromptTokens).toBe(computed);
    session.context.clearSequence(2);
    const fresh = await session.run({ ...wish, sequenceId: 3 });
    expect(outcome.tokens).toEqual(fresh.tokens);
    const differences = lastRow(fresh).map((value, i) => Math.abs(value - (lastRow(outcome)[i] ?? Number.NaN)));
    expect(differences.length).toBe(FIXTURE_SHAPE.width);
    expect(Math.max(...differences)).toBeLessThan(0.01);
    await session.context.dispose();
  });
});
