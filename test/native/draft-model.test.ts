import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { STEP_RECORD_WORDS } from "../../backend/native/binding.ts";
import type { ContextCounters, NativeModel, NativeSae, SamplerOptions } from "../../backend/native/binding.ts";
import type { JobOutcome, JobWish } from "../support/native-harness.ts";
import { codeOf, DEMO_F32, DEMO_Q8, GREEDY, nativeAddon, NativeSession, openModel } from "../support/native-harness.ts";
import { FIXTURE_SHAPE, type FixtureArchitecture, randomModel } from "../support/random-model.ts";
import { demoSae } from "../support/sae-fixture.ts";

const WIDTH = 128;
const SEA_FEATURE = 501;
const STREAMS = 8;
const DRAWN: SamplerOptions = { ...GREEDY, temperature: 0.8, topP: 0.95, topK: 40 };

/** All that is told of a job, but for its id. */
const told = ({ tokens, tokenPositions, text, sensed, finished }: JobOutcome) => ({
  tokens,
  tokenPositions,
  text: text.toString("latin1"),
  sensed: [...sensed.keys()].toSorted(),
  finished: { ...finished, jobId: 0, editedRows: [...finished.editedRows] },
});

const difference = (after: ContextCounters, before: ContextCounters) => ({
  drafted: after.draftedTokens - before.draftedTokens,
  accepted: after.acceptedTokens - before.acceptedTokens,
  computed: after.draftModelTokens - before.draftModelTokens,
  steps: after.steps - before.steps,
});

/** The quantised demo model guesses for the full one: nearly always right where nothing steers. */
describe("speculative decoding by a draft model", () => {
  const folder = mkdtempSync(join(tmpdir(), "steerage-draft-"));
  let model: NativeModel;
  let draft: NativeModel;
  let plain: NativeSession;
  let drafting: NativeSession;
  let sae: NativeSae;
  const tensors = demoSae("demo-l1");
  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    draft = await openModel(DEMO_Q8);
    plain = await NativeSession.open(model);
    drafting = await NativeSession.open(model, { speculation: { tokens: 4, whenFaster: false, model: draft } });
    sae = (await nativeAddon()).loadSae(tensors);
  });
  afterAll(async () => {
    await plain.context.dispose();
    await drafting.context.dispose();
    await model.dispose();
    await draft.dispose();
    rmSync(folder, { recursive: true });
  });

  const tokensOf = (text: string): Int32Array => model.tokenize(text, true, false);
  const steered = (strength: number) => ({
    layer: 1,
    fromPosition: 0,
    toPosition: -1,
    vector: tensors.decoderRows.slice(SEA_FEATURE * WIDTH, (SEA_FEATURE + 1) * WIDTH).map((value) => value * strength),
  });
  const story = (n: number): JobWish => ({
    tokens: tokensOf(`Story ${n}: once upon a time there was a`),
    maxTokens: 80,
    ignoreEndOfGeneration: true,
  });
  const fixture = async (architecture: FixtureArchitecture, shape = FIXTURE_SHAPE): Promise<NativeModel> => {
    const path = join(folder, `${architecture}-${shape.contextLength}.gguf`);
    writeFileSync(path, randomModel(architecture, 5, shape));
    return openModel(path);
  };
  const compare = async (wish: JobWish) => {
    const before = drafting.counters();
    const expected = await plain.run(wish);
    const outcome = await drafting.run(wish);
    expect(told(outcome)).toEqual(told(expected));
    return { outcome, ...difference(drafting.counters(), before) };
  };

  it.each([
    { name: "greedy", sampler: GREEDY, strength: 0 },
    { name: "greedy and steered", sampler: GREEDY, strength: 20 },
    { name: "drawn at 0.8", sampler: DRAWN, strength: 0 },
    { name: "drawn at 0.8 and steered", sampler: DRAWN, strength: 20 },
  ])("gives the tokens that come without it: $name", async ({ sampler, strength }) => {
    let drafted = 0;
    let accepted = 0;
    for (let n = 0; n < 4; n++) {
      const edits = strength === 0 ? [] : [steered(strength)];
      const counts = await compare({ ...story(n), sampler: { ...sampler, seed: n }, edits });
      drafted += counts.drafted;
      accepted += counts.accepted;
    }
    expect(accepted).toBeGreaterThan(0);
    expect(drafted).toBeGreaterThanOrEqual(accepted);
  });

  it("reads each token once as long as it guesses right: its cells follow what was accepted", async () => {
    const wish = story(1);
    const { outcome, drafted, accepted, computed, steps } = await compare(wish);
    expect(accepted).toBeGreaterThan(0.9 * drafted);
    expect(steps).toBeLessThan(outcome.tokens.length / 2);
    // The prompt, the answer and a token or two for each guess that was wrong; reading again would be many times that.
    const rejected = drafted - accepted;
    expect(computed).toBeLessThanOrEqual(wish.tokens.length + outcome.tokens.length + 2 * rejected);
    expect(computed).toBeGreaterThan(drafted);
  });

  it("senses accepted rows only, ends at stop strings and at the limit as without", async () => {
    const sensing = [
      { sae, layer: 1, fromPosition: 0, toPosition: -1, readPoint: "pre_steering" as const, features: null, topK: 4 },
    ];
    const whole = (await plain.run(story(2))).text.toString();
    for (let at = 15; at + 6 < whole.length; at += 60) {
      const { outcome } = await compare({ ...story(2), sensing, stopStrings: [whole.slice(at, at + 6)] });
      expect(outcome.finished.reason).toBe("stop_string");
      expect(outcome.sensed.size).toBe(story(2).tokens.length + outcome.tokens.length - 1);
    }
    for (let maxTokens = 1; maxTokens < 10; maxTokens++) {
      const { outcome } = await compare({ ...story(3), maxTokens, ignoreEndOfGeneration: false });
      expect(outcome.finished.computedCompletionTokens).toBeLessThanOrEqual(maxTokens);
    }
  });

  it("drafts for parallel streams together, a long prompt among them, and keeps them apart", async () => {
    const long = tokensOf("the whale saw the sailor and the sea in the morning. ".repeat(12));
    const wishes = Array.from({ length: STREAMS }, (_, n) => ({
      ...story(n),
      ...(n === 3 ? { tokens: long } : {}),
      sequenceId: n,
      maxTokens: 60 + 5 * n,
      sampler: { ...(n % 2 === 0 ? GREEDY : DRAWN), seed: n },
      edits: n % 3 === 1 ? [steered(10)] : [],
    }));
    const alone: JobOutcome[] = [];
    for (const wish of wishes) alone.push(await plain.run(wish));
    const before = drafting.counters();
    const together = await Promise.all(wishes.map((wish) => drafting.run(wish)));
    for (const [n, outcome] of together.entries()) expect(told(outcome)).toEqual(told(alone[n] ?? outcome));
    const { drafted, accepted } = difference(drafting.counters(), before);
    expect(accepted).toBeGreaterThan(0);
    expect(drafted).toBeGreaterThan(accepted);
  });

  it("reads a continued or copied prompt again only behind what the main model kept", async () => {
    const first = await drafting.run({ ...story(5), sequenceId: 6 });
    const tokens = Int32Array.from([...story(5).tokens, ...first.tokens.slice(0, 40)]);
    const computedFor = async (wish: Partial<JobWish>) => {
      const before = drafting.counters();
      const outcome = await drafting.run({ ...story(5), tokens, maxTokens: 20, ...wish });
      expect(outcome.tokens).toEqual(first.tokens.slice(40, 60));
      const { computed, drafted, accepted } = difference(drafting.counters(), before);
      // It would guess worse if it had not read what comes before.
      expect(accepted).toBe(drafted);
      return computed;
    };
    const keepTokens = tokens.length - 1;
    const copied = await computedFor({ sequenceId: 7, copyFromSequenceId: 6, keepTokens });
    const continued = await computedFor({ sequenceId: 6, keepTokens });
    // What stood there may be another caller's: without cells to keep, nothing is taken over.
    const fresh = await computedFor({ sequenceId: 6, keepTokens: 0 });
    expect(fresh).toBeGreaterThanOrEqual(tokens.length);
    expect(Math.max(copied, continued)).toBeLessThan(30);
  });

  it("drafts behind the tokens that were drawn, not behind those that it guessed", async () => {
    // The model guesses for itself, two tokens at a time, but may not say what it would say most.
    const itself = await NativeSession.open(model, { speculation: { tokens: 2, whenFaster: false, model } });
    const whole = await plain.run(story(0));
    const banned = [...new Set(whole.tokens)].slice(0, 12).map((token) => ({ token, bias: -1_000 }));
    const wish = { ...story(0), logprobs: 1, sampler: { ...GREEDY, logitBias: banned } };
    const expected = await plain.run(wish);
    const wrong = expected.tokens.filter((token, at) => expected.logprobs[at]?.topTokens[0] !== token).length;
    expect((await itself.run(wish)).tokens).toEqual(expected.tokens);
    const { draftedTokens, acceptedTokens } = itself.counters();
    expect(draftedTokens).toBeGreaterThan(30);
    expect(draftedTokens - acceptedTokens).toBeGreaterThan(0);
    // Each such place costs the guesses of one step; with wrong tokens in its cells it would go on guessing wrong.
    expect(draftedTokens - acceptedTokens).toBeLessThanOrEqual(2 * wrong);
    await itself.context.dispose();
  });

  it("has read what was drawn while it rested, and nothing that it guessed before", async () => {
    const itself = await NativeSession.open(model, { speculation: { tokens: 6, whenFaster: false, model } });
    // Nobody guesses the beginning, so drafting soon rests; behind it the model guesses for itself again.
    const grammar = `root ::= "${"Zq9 Xv7 Kj3 ".repeat(2)}" [^#]*`;
    const wish = { ...story(1), maxTokens: 100, sampler: { ...GREEDY, grammar } };
    const midway: ContextCounters[] = [];
    let sampled = 0;
    itself.onStep = ({ records }) => {
      sampled += records.length / STEP_RECORD_WORDS;
      if (sampled > 36 && midway.length === 0) midway.push(itself.counters());
    };
    const outcome = await itself.run(wish);
    expect(outcome.tokens).toEqual((await plain.run(wish)).tokens);
    const [before = itself.counters()] = midway;
    const { drafted, accepted } = difference(itself.counters(), before);
    expect(before.draftedTokens).toBeGreaterThan(before.acceptedTokens);
    expect(drafted).toBeGreaterThan(5);
    expect(accepted).toBe(drafted);
    await itself.context.dispose();
  });

  it("drafts up to the last position that the draft model has learned, and then does without", async () => {
    const main = await fixture("gpt2");
    const short = await fixture("gpt2", { ...FIXTURE_SHAPE, contextLength: 64 });
    const session = await NativeSession.open(main, { speculation: { tokens: 4, whenFaster: false, model: short } });
    const without = await NativeSession.open(main);
    const sampler = { ...GREEDY, allowedTokens: Int32Array.of(65, 66) };
    const wish = { tokens: Int32Array.from({ length: 40 }, (_, i) => 60 + (i % 9)), maxTokens: 60, sampler };
    expect((await session.run(wish)).tokens).toEqual((await without.run(wish)).tokens);
    const { draftModelTokens } = session.counters();
    expect(draftModelTokens).toBeGreaterThan(40);
    await session.run({ ...wish, tokens: new Int32Array(70).fill(65), sequenceId: 1 });
    expect(session.counters().draftModelTokens).toBe(draftModelTokens);
    await session.context.dispose();
    await without.context.dispose();
    await short.dispose();
    await main.dispose();
  });

  it("goes on when the draft model's cells are full of what idle sequences held", async () => {
    const options = { sequenceCount: 4, cellCount: 256, batchTokens: 64 };
    const small = await NativeSession.open(model, {
      ...options,
      speculation: { tokens: 4, whenFaster: false, model: draft },
    });
    for (let round = 0; round < 3; round++) {
      for (let sequenceId = 0; sequenceId < 4; sequenceId++) {
        for (let other = 0; other < 4; other++) small.context.clearSequence(other);
        const wish = {
          ...story(round),
          tokens: tokensOf(`Tale ${round} of ${"sea and snow ".repeat(12)}`),
          sequenceId,
        };
        const before = small.counters();
        const outcome = await small.run(wish);
        expect(outcome.tokens).toEqual((await plain.run(wish)).tokens);
        expect(difference(small.counters(), before).accepted).toBeGreaterThan(0);
      }
    }
    await small.context.dispose();
  });

  it("refuses a draft model with other tokens, naming the difference", async () => {
    const other = await fixture("llama");
    await expect(NativeSession.open(model, { speculation: { tokens: 4, model: other } })).rejects.toMatchObject({
      code: "model_unsupported",
      message: expect.stringMatching(/^the draft model has another vocabulary than the model: .*258 tokens there/u),
    });
    await other.dispose();
  });

  it("refuses a draft model whose state cannot be taken back, and one that was given back", async () => {
    const [main, recurrent] = [await fixture("llama"), await fixture("mamba")];
    await expect(NativeSession.open(main, { speculation: { tokens: 4, model: recurrent } })).rejects.toMatchObject({
      code: "model_unsupported",
      message: expect.stringContaining("the memory of the draft model does not allow: it is recurrent"),
    });
    await recurrent.dispose();
    expect(await codeOf(() => NativeSession.open(main, { speculation: { tokens: 4, model: recurrent } }))).toBe(
      "disposed",
    );
    await main.dispose();
  });

  it("keeps the draft model from being given back while a context drafts with it", async () => {
    expect(await codeOf(() => draft.dispose())).toBe("invalid_argument");
  });
});
