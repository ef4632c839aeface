import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { STEP_RECORD_WORDS } from "../../backend/native/binding.ts";
import type {
  NativeModel,
  NativeSae,
  SamplerOptions,
  SensingPlan,
  SpeculationOptions,
} from "../../backend/native/binding.ts";
import type { JobOutcome, JobWish } from "../support/native-harness.ts";
import { expectEveryStepChecked } from "../support/checked-steps.ts";
import { codeOf, DEMO_F32, GREEDY, nativeAddon, NativeSession, openModel } from "../support/native-harness.ts";
import { demoSae } from "../support/sae-fixture.ts";

const WIDTH = 128;
const SEA_FEATURE = 501;
const STREAMS = 8;
const DRAWN: SamplerOptions = { ...GREEDY, temperature: 0.8, topP: 0.95, topK: 40 };
const everywhere = { fromPosition: 0, toPosition: -1 };

/** All that is told of a job, but for its id and the rounding of log-probabilities. */
const told = ({ tokens, tokenPositions, text, sensed, captured, logprobs, finished }: JobOutcome) => ({
  tokens,
  tokenPositions,
  text: text.toString("latin1"),
  sensed: [...sensed].map(([place, features]) => `${place} ${[...features.keys()].join()}`).toSorted(),
  captured: [...captured.keys()].toSorted(),
  alternatives: logprobs.map(({ topTokens }) => [...topTokens]),
  finished: { ...finished, jobId: 0, editedRows: [...finished.editedRows] },
});

describe("speculative decoding by prompt look-up", () => {
  let model: NativeModel;
  let plain: NativeSession;
  let drafting: NativeSession;
  let sae: NativeSae;
  const tensors = demoSae("demo-l1");
  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    plain = await NativeSession.open(model);
    drafting = await NativeSession.open(model, { speculation: { tokens: 5, whenFaster: false } });
    sae = (await nativeAddon()).loadSae(tensors);
  });
  afterAll(async () => {
    await plain.context.dispose();
    await drafting.context.dispose();
    await model.dispose();
  });

  const tokensOf = (text: string): Int32Array => model.tokenize(text, true, false);
  /** Text that the demo model takes up again, so that look-up is right at times and wrong at times. */
  const repeating = (n = 0): Int32Array =>
    tokensOf(`${`Tom ${n} saw a big red ball. He ran to the big red ball. `.repeat(3 + (n % 3))}Tom ${n} saw a`);
  const steered = (strength: number) => ({
    layer: 1,
    ...everywhere,
    vector: tensors.decoderRows.slice(SEA_FEATURE * WIDTH, (SEA_FEATURE + 1) * WIDTH).map((value) => value * strength),
  });

  const sensingOf = (...readPoints: readonly SensingPlan["readPoint"][]): SensingPlan[] =>
    readPoints.map((readPoint) => ({ sae, layer: 1, ...everywhere, readPoint, features: null, topK: 4 }));

  /** Runs the wish on both and gives what drafting did; the outcomes must not differ. */
  const compare = async (wish: JobWish): Promise<{ outcome: JobOutcome; drafted: number; accepted: number }> => {
    const before = drafting.counters();
    const expected = await plain.run(wish);
    const read: string[] = [];
    drafting.onStep = ({ sensed, captured }) => {
      for (const { planIndex, positions } of [...sensed, ...captured]) {
        read.push(...[...positions].map((position) => `${planIndex}:${position}`));
      }
    };
    const outcome = await drafting.run(wish);
    expect(told(outcome)).toEqual(told(expected));
    // Each row is told once: a position that a rejected draft had has one reading too, not two.
    expect(read.length).toBe(outcome.sensed.size + outcome.captured.size);
    const after = drafting.counters();
    const drafted = after.draftedTokens - before.draftedTokens;
    const accepted = after.acceptedTokens - before.acceptedTokens;
    return { outcome, drafted, accepted };
  };

  const longWish = (n: number): JobWish => ({ tokens: repeating(n), maxTokens: 100, ignoreEndOfGeneration: true });

  it.each([
    { name: "greedy", sampler: GREEDY, strength: 0 },
    { name: "greedy and steered", sampler: GREEDY, strength: 20 },
    { name: "drawn at 0.8", sampler: DRAWN, strength: 0 },
    { name: "drawn at 0.8 and steered", sampler: DRAWN, strength: 20 },
  ])("gives the tokens that come without it: $name", async ({ sampler, strength }) => {
    let drafted = 0;
    let accepted = 0;
    for (let n = 0; n < 8; n++) {
      const edits = strength === 0 ? [] : [steered(strength)];
      // Half of them may only use the prompt's words, which look-up then guesses often.
      const allowedTokens = n % 2 === 0 ? new Int32Array() : repeating(n);
      const counts = await compare({ ...longWish(n), sampler: { ...sampler, seed: n, allowedTokens }, edits });
      drafted += counts.drafted;
      accepted += counts.accepted;
    }
    expect(accepted).toBeGreaterThan(0);
    expect(drafted).toBeGreaterThan(accepted);
  });

  it("takes fewer steps than tokens where the text repeats itself", async () => {
    const sampler: SamplerOptions = { ...DRAWN, seed: 3, grammar: 'root ::= ("the sea and the snow, ")+' };
    const before = drafting.counters();
    const { outcome, accepted } = await compare({ tokens: tokensOf("Once"), maxTokens: 120, sampler });
    const steps = drafting.counters().steps - before.steps;
    expect(outcome.finished.computedCompletionTokens).toBe(120);
    expect(accepted).toBeGreaterThan(20);
    expect(steps).toBe(120 - accepted);
  });

  it("holds the answer to a grammar as before", async () => {
    const grammar = 'root ::= item item item item item item item item "end."\nitem ::= "red ball, " | "blue ball, "';
    for (let seed = 0; seed < 6; seed++) {
      const { outcome } = await compare({ ...longWish(seed), sampler: { ...DRAWN, seed, grammar } });
      expect(outcome.text.toString()).toMatch(/^((red|blue) ball, ){8}end\.$/u);
    }
  });

  it("keeps penalties, bias, allowed tokens and log-probabilities in step with the answer", async () => {
    const allowedTokens = Int32Array.from([...new Set(repeating())].toSorted((a, b) => a - b));
    for (const sampler of [
      { ...DRAWN, seed: 1, repeatPenalty: 1.3, penaltyWindow: 20 },
      { ...GREEDY, frequencyPenalty: 0.5, presencePenalty: 0.3, penaltyWindow: -1 },
      { ...GREEDY, logitBias: [{ token: 65, bias: 8 }] },
      { ...DRAWN, seed: 4, allowedTokens },
    ]) {
      const wish = { ...longWish(1), sampler, logprobs: 3 };
      const { outcome } = await compare(wish);
      const expected = await plain.run(wish);
      for (const [at, { logprob }] of outcome.logprobs.entries()) {
        expect(logprob).toBeCloseTo(expected.logprobs[at]?.logprob ?? Number.NaN, 3);
      }
      expect(outcome.logprobs.length).toBe(outcome.tokens.length);
    }
  });

  it("ends at the limit whatever is drafted beyond it", async () => {
    const sampler: SamplerOptions = { ...GREEDY, grammar: 'root ::= ("ball ")+' };
    for (let maxTokens = 1; maxTokens <= 24; maxTokens++) {
      const { outcome } = await compare({ tokens: repeating(), maxTokens, sampler });
      expect(outcome.finished).toMatchObject({ reason: "length", computedCompletionTokens: maxTokens });
    }
  });

  it("ends at a stop string inside a draft, and its cells are those of the answer", async () => {
    const wish = longWish(0);
    const whole = (await plain.run(wish)).text.toString();
    for (let at = 20; at + 6 < whole.length; at += 37) {
      const stopStrings = [whole.slice(at, at + 6)];
      const { outcome } = await compare({ ...wish, stopStrings, sensing: sensingOf("post_steering") });
      expect(outcome.finished.reason).toBe("stop_string");
      const next = Int32Array.from([...wish.tokens, ...outcome.tokens, ...tokensOf(" and then").subarray(1)]);
      const keepTokens = wish.tokens.length + outcome.tokens.length - 1;
      const continued = await drafting.run({ tokens: next, keepTokens, maxTokens: 12 });
      expect(continued.finished.computedPromptTokens).toBe(next.length - keepTokens);
      expect(continued.tokens).toEqual((await plain.run({ tokens: next, maxTokens: 12, sequenceId: 1 })).tokens);
    }
  });

  it("ends at an end-of-generation token that was drafted, and keeps no row of it", async () => {
    const end = model.info.eosToken ?? 0;
    const story = [...tokensOf("The end."), end];
    const tokens = Int32Array.from([...story, ...story, ...story, ...story.slice(0, -1)]);
    // Only these may come, in this order, so the end is drafted before it is drawn.
    const { outcome, drafted, accepted } = await compare({
      tokens,
      maxTokens: 30,
      sampler: { ...GREEDY, grammar: 'root ::= "The end. " "The end."' },
    });
    expect(outcome.finished.reason).toBe("end_of_generation");
    expect(accepted).toBeGreaterThan(0);
    expect(drafted).toBeGreaterThan(accepted);
    expect(outcome.tokens.filter((token) => token === end).length).toBe(1);
  });

  it("tells edits, sensing and captures of accepted rows only, at their positions and under their conditions", async () => {
    const start = repeating().length;
    const edits = [
      { ...steered(15), ranges: Int32Array.of(2, 5, start + 3, start + 9, start + 30, -1) },
      { ...steered(6), condition: { sae, feature: 117, comparison: "<=" as const, value: 0.5 } },
      { ...steered(2), layer: 3, fromPosition: start + 4 },
    ];
    const sensing = sensingOf("pre_steering", "post_steering");
    const capture = [{ layer: 2, fromPosition: start - 2, toPosition: -1, readPoint: "pre_steering" as const }];
    let drafted = 0;
    let accepted = 0;
    for (let seed = 0; seed < 4; seed++) {
      const counts = await compare({
        tokens: repeating(),
        maxTokens: 60,
        ignoreEndOfGeneration: true,
        sampler: { ...DRAWN, seed, allowedTokens: repeating() },
        edits,
        sensing,
        capture,
      });
      expect(counts.outcome.sensed.size).toBe(2 * (start + 59));
      expect(counts.outcome.captured.size).toBe(2 + 59);
      drafted += counts.drafted;
      accepted += counts.accepted;
    }
    expect(accepted).toBeGreaterThan(0);
    expect(drafted).toBeGreaterThan(accepted);
  });

  it("keeps parallel streams apart, each with the tokens of its solo run", async () => {
    const wishes = Array.from({ length: STREAMS }, (_, n) => ({
      ...longWish(n),
      sequenceId: n,
      maxTokens: 40 + 7 * n,
      sampler: { ...(n % 2 === 0 ? GREEDY : DRAWN), seed: n },
      edits: n % 3 === 0 ? [steered(10)] : [],
    }));
    const alone: JobOutcome[] = [];
    for (const wish of wishes) alone.push(await plain.run(wish));
    const before = drafting.counters();
    const together = await Promise.all(wishes.map((wish) => drafting.run(wish)));
    const after = drafting.counters();
    for (const [n, outcome] of together.entries()) expect(told(outcome)).toEqual(told(alone[n] ?? outcome));
    const sum = (pick: (outcome: JobOutcome) => number): number =>
      together.reduce((total, outcome) => total + pick(outcome), 0);
    expect(after.completionTokens - before.completionTokens).toBe(
      sum(({ finished }) => finished.computedCompletionTokens),
    );
    expect(after.promptTokens - before.promptTokens).toBe(sum(({ finished }) => finished.computedPromptTokens));
    expect(after.draftedTokens - before.draftedTokens).toBeGreaterThan(0);
    expectEveryStepChecked(before, after);
  });

  it("leaves a step to the prompts that wait, and drafts from what they leave", async () => {
    const grammar = 'root ::= ("the sea and the snow, ")+';
    const runner = drafting.start({ tokens: repeating(), maxTokens: 3000, sampler: { ...GREEDY, grammar } });
    const beside: number[] = [];
    const alone: number[] = [];
    const long: Promise<JobOutcome>[] = [];
    drafting.onStep = ({ records, prompts, finished }) => {
      const ofRunner = records.filter((word, at) => at % STEP_RECORD_WORDS === 0 && word === runner.jobId).length;
      const progress = prompts.find(({ jobId }) => jobId !== runner.jobId);
      if (progress !== undefined && progress.computedTokens < 600) beside.push(ofRunner);
      if (long.length === 0 && ofRunner > 0) alone.push(ofRunner);
      if (alone.length === 60 && long.length === 0)
        long.push(drafting.run({ tokens: new Int32Array(600).fill(300), sequenceId: 1, maxTokens: 1 }));
      if (finished.length > 0) drafting.context.cancel(runner.jobId);
    };
    await runner.outcome;
    await Promise.all(long);
    expect(Math.max(...alone)).toBeGreaterThan(1);
    expect(beside.length).toBeGreaterThanOrEqual(2);
    expect(new Set(beside)).toEqual(new Set([1]));
  });

  it("costs no answer a token when the cells run out", async () => {
    const tight = { sequenceCount: 2, cellCount: 256, batchTokens: 64 };
    const run = async (speculation: SpeculationOptions | null) => {
      const session = await NativeSession.open(model, { ...tight, speculation });
      const sampler: SamplerOptions = { ...GREEDY, grammar: 'root ::= ("the ball ")+' };
      const outcome = await session.run({ tokens: repeating().slice(0, 100), maxTokens: 1000, sampler });
      const { acceptedTokens } = session.counters();
      await session.context.dispose();
      return { outcome, acceptedTokens };
    };
    const without = await run(null);
    const withDrafts = await run({ tokens: 16, whenFaster: false });
    expect(withDrafts.acceptedTokens).toBeGreaterThan(50);
    expect(withDrafts.outcome.finished).toMatchObject({ reason: "failed", errorCode: "decode_failed" });
    expect(withDrafts.outcome.tokens).toEqual(without.outcome.tokens);
  });

  it("gives back the cells of what was drafted beyond the end of an answer", async () => {
    const cellCount = 256;
    const options = { sequenceCount: 2, cellCount, batchTokens: 64, speculation: { tokens: 16, whenFaster: false } };
    const session = await NativeSession.open(model, options);
    const grammar = 'root ::= ("the red ball and the blue ball, ")+';
    const tokens = repeating();
    const ended = await session.run({
      tokens,
      maxTokens: 90,
      sampler: { ...GREEDY, grammar },
      stopStrings: ["ball, the red ball and the blue ball, the red"],
    });
    expect(ended.finished.reason).toBe("stop_string");
    const { draftedTokens, acceptedTokens } = session.counters();
    expect(draftedTokens).toBeGreaterThan(acceptedTokens);
    const held = tokens.length + ended.tokens.length - 1;
    const rest = new Int32Array(cellCount - held).fill(65);
    const other = await session.run({ tokens: rest, sequenceId: 1, maxTokens: 1 });
    expect(other.finished).toMatchObject({ reason: "length", errorCode: null });
    await session.context.dispose();
  });

  it("refuses a number of tokens that is none", async () => {
    for (const tokens of [0, 65, 2.5]) {
      expect(await codeOf(() => NativeSession.open(model, { speculation: { tokens } }))).toBe("invalid_argument");
    }
  });
});
