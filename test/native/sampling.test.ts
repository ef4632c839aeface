import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeModel, SamplerOptions } from "../../backend/native/binding.ts";
import { DEMO_F32, GREEDY, NativeSession, openModel } from "../support/native-harness.ts";

describe("sampling", () => {
  let model: NativeModel;
  let session: NativeSession;
  let tokens: Int32Array;
  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    session = await NativeSession.open(model);
    tokens = model.tokenize("Once upon a time", true, false);
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
  });

  const drawn: SamplerOptions = { ...GREEDY, temperature: 1, topK: 40, topP: 0.95, minP: 0.01 };
  const draw = async (seed: number, sequenceId = 0): Promise<number[]> =>
    (await session.run({ tokens, sequenceId, maxTokens: 30, sampler: { ...drawn, seed } })).tokens;

  it.each([0, 7, 2 ** 32 - 1])("repeats itself with seed %i, on any sequence", async (seed) => {
    expect(await draw(seed, 3)).toEqual(await draw(seed));
  });

  it("differs between seeds", async () => {
    expect(await draw(1)).not.toEqual(await draw(2));
  });

  it("does as logit bias says", async () => {
    const outcome = await session.run({
      tokens,
      maxTokens: 5,
      sampler: { ...GREEDY, logitBias: [{ token: 65, bias: 1000 }] },
    });
    expect(outcome.tokens).toEqual([65, 65, 65, 65, 65]);
  });

  const repeats = async (sampler: SamplerOptions): Promise<number> => {
    const outcome = await session.run({ tokens, maxTokens: 20, ignoreEndOfGeneration: true, sampler });
    return outcome.tokens.filter((token) => token === 65).length;
  };

  it("repeats itself less with penalties", async () => {
    const looping: SamplerOptions = { ...GREEDY, logitBias: [{ token: 65, bias: 30 }] };
    const unpenalised = await repeats(looping);
    expect(unpenalised).toBe(20);
    expect(await repeats({ ...looping, frequencyPenalty: 4, penaltyWindow: -1 })).toBeLessThan(unpenalised);
    expect(await repeats({ ...looping, presencePenalty: 40 })).toBe(1);
    expect(await repeats({ ...looping, repeatPenalty: 10 })).toBeLessThan(unpenalised);
    expect(await repeats({ ...looping, presencePenalty: 40, penaltyWindow: 0 })).toBe(unpenalised);
  });

  it("gives log-probabilities of the model's own distribution, whatever the sampler does", async () => {
    const plain = await session.run({ tokens, maxTokens: 1, logprobs: 20 });
    const [first] = plain.logprobs;
    const probabilities = [...(first?.topLogprobs ?? [])].map(Math.exp);
    expect(probabilities.length).toBe(20);
    expect(probabilities).toEqual(probabilities.toSorted((a, b) => b - a));
    expect(probabilities.reduce((sum, p) => sum + p, 0)).toBeLessThanOrEqual(1.0001);
    expect(first?.topTokens[0]).toBe(plain.tokens[0]);
    expect(first?.logprob).toBe(first?.topLogprobs[0]);

    const forced = await session.run({
      tokens,
      maxTokens: 1,
      logprobs: 0,
      sampler: { ...GREEDY, logitBias: [{ token: first?.topTokens[3] ?? 0, bias: 500 }] },
    });
    expect(forced.logprobs[0]?.logprob).toBe(first?.topLogprobs[3]);
    expect(forced.logprobs[0]?.topTokens.length).toBe(0);
  });

  it("samples only allowed tokens, with log-probabilities over them alone", async () => {
    const free = await session.run({ tokens, maxTokens: 1, logprobs: 20 });
    const [a = 0, b = 0] = free.logprobs[0]?.topTokens.subarray(5, 7) ?? [];
    const sampler = { ...GREEDY, allowedTokens: Int32Array.of(b, a, a) };
    const { logprobs, tokens: sampled } = await session.run({ tokens, maxTokens: 1, logprobs: 5, sampler });
    expect(sampled).toEqual([a]);
    expect([...(logprobs[0]?.topTokens ?? [])]).toEqual([a, b]);
    const chances = [...(logprobs[0]?.topLogprobs ?? [])];
    expect(chances.reduce((sum, logprob) => sum + Math.exp(logprob), 0)).toBeCloseTo(1, 5);
    const [freeA = 0, freeB = 0] = free.logprobs[0]?.topLogprobs.subarray(5, 7) ?? [];
    expect((chances[0] ?? 0) - (chances[1] ?? 0)).toBeCloseTo(freeA - freeB, 4);
  });

  it("tells the chances of a prompt's own tokens, which are those of a completion that samples them", async () => {
    const grown = await session.run({ tokens, maxTokens: 80, logprobs: 2, ignoreEndOfGeneration: true });
    const whole = Int32Array.from([...tokens, ...grown.tokens]);
    const { promptLogprobs } = await session.run({ tokens: whole, maxTokens: 1, logprobs: 2, promptLogprobs: true });
    expect(promptLogprobs.map(({ position }) => position)).toEqual([...whole.keys()].slice(1));
    const ofCompletion = promptLogprobs.slice(tokens.length - 1);
    for (const [at, { logprob, topTokens }] of ofCompletion.entries()) {
      expect(logprob).toBeCloseTo(grown.logprobs[at]?.logprob ?? NaN, 2);
      expect(topTokens[0]).toBe(grown.logprobs[at]?.topTokens[0]);
    }
  });

  it("shows the text of a control token only where that is asked for", async () => {
    const control = model.tokenize("<|im_start|>", false, true)[0] ?? 0;
    expect(model.isControl(control)).toBe(true);
    const sampler: SamplerOptions = { ...GREEDY, allowedTokens: Int32Array.of(control) };
    const hidden = await session.run({ tokens, maxTokens: 2, sampler });
    const shown = await session.run({ tokens, maxTokens: 2, sampler, renderedTokens: Int32Array.of(control) });
    expect([hidden, shown].map(({ text }) => text.toString())).toEqual(["", "<|im_start|><|im_start|>"]);
  });

  it("holds the answer to a grammar and ends when the grammar is through", async () => {
    const outcome = await session.run({
      tokens,
      maxTokens: 40,
      ignoreEndOfGeneration: true,
      sampler: { ...drawn, seed: 5, grammar: 'root ::= " " ("sea" | "snow") "." [0-9] [0-9]' },
    });
    expect(outcome.text.toString()).toMatch(/^ (sea|snow)\.\d\d$/u);
    expect(outcome.finished.reason).toBe("end_of_generation");
  });

  it("refuses a grammar that does not parse when the job is submitted", () => {
    expect(() => session.start({ tokens, sampler: { ...GREEDY, grammar: "root ::= (" } })).toThrow(
      expect.objectContaining({ code: "grammar_invalid" }),
    );
  });

  it("ends at its end-of-generation token and counts it, or goes on past it when told to", async () => {
    const end = model.info.eosToken ?? 0;
    const sampler: SamplerOptions = { ...GREEDY, logitBias: [{ token: end, bias: 1000 }] };
    const ended = await session.run({ tokens, maxTokens: 5, sampler });
    expect(ended.tokens).toEqual([end]);
    expect(ended.text.length).toBe(0);
    expect(ended.finished).toMatchObject({ reason: "end_of_generation", computedCompletionTokens: 1 });
    const ignored = await session.run({ tokens, maxTokens: 5, sampler, ignoreEndOfGeneration: true });
    expect(ignored.tokens.length).toBe(5);
    expect(ignored.finished.reason).toBe("length");
  });

  it("finds stop strings across token borders and says where the text ends", async () => {
    const whole = (await session.run({ tokens, maxTokens: 60, ignoreEndOfGeneration: true })).text.toString();
    for (let at = 3; at + 7 < whole.length; at += 5) {
      const stop = whole.slice(at, at + 7);
      const outcome = await session.run({
        tokens,
        maxTokens: 60,
        ignoreEndOfGeneration: true,
        stopStrings: ["never in this text", stop],
      });
      const { reason, stopIndex, textEndBytes } = outcome.finished;
      expect({ reason, stopIndex }).toEqual({ reason: "stop_string", stopIndex: 1 });
      expect(outcome.text.subarray(0, textEndBytes).toString()).toBe(whole.slice(0, whole.indexOf(stop)));
      expect(outcome.text.toString()).toContain(stop);
    }
  });

  it("takes the stop string that begins first when two end together", async () => {
    const whole = (await session.run({ tokens, maxTokens: 40, ignoreEndOfGeneration: true })).text.toString();
    const stopStrings = [whole.slice(12, 16), whole.slice(10, 16)];
    const { finished } = await session.run({ tokens, maxTokens: 40, ignoreEndOfGeneration: true, stopStrings });
    const begins = stopStrings.map((stop) => whole.indexOf(stop));
    expect(finished.textEndBytes).toBe(Math.min(...begins));
  });
});
