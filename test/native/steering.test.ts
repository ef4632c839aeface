import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeModel, NativeSae, TokenLogprobs } from "../../backend/native/binding.ts";
import { DEMO_F32, GREEDY, NativeSession, nativeAddon, openModel } from "../support/native-harness.ts";
import { demoSae } from "../support/sae-fixture.ts";

const PROMPT = "Once upon a time there was a";
const SEA_FEATURE = 501;

const values = ({ logprob, topTokens, topLogprobs }: TokenLogprobs) => [logprob, topTokens, topLogprobs];

const refusal = (code: string): unknown => expect.objectContaining({ code });

describe("steering and sensing", () => {
  let model: NativeModel;
  let session: NativeSession;
  let sae: NativeSae;
  let tokens: Int32Array;
  const tensors = demoSae("demo-l1");
  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    session = await NativeSession.open(model);
    sae = (await nativeAddon()).loadSae(tensors);
    tokens = model.tokenize(PROMPT, true, false);
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
  });

  const decoderRow = (feature: number, strength: number): Float32Array =>
    tensors.decoderRows.slice(feature * 128, (feature + 1) * 128).map((value) => value * strength);
  const everywhere = { fromPosition: 0, toPosition: -1 };

  it("changes nothing with an edit of zeros: tokens and log-probabilities are the same bits", async () => {
    const plain = await session.run({ tokens, maxTokens: 24, logprobs: 20 });
    const edits = [0, 2].map((layer) => ({ layer, ...everywhere, vector: new Float32Array(128) }));
    const zero = await session.run({ tokens, maxTokens: 24, logprobs: 20, edits });
    expect(zero.tokens).toEqual(plain.tokens);
    expect(zero.logprobs.map(values)).toEqual(plain.logprobs.map(values));
    const rows = tokens.length + zero.tokens.length - 1;
    expect([...zero.finished.editedRows]).toEqual([rows, rows]);
  });

  it("pulls the story towards a feature", async () => {
    const seaWords = /sail|sea|wave|beach|shell|whale|boat|fish|sand|ship|crab|island|ocean/gu;
    const count = async (strength: number): Promise<number> => {
      let words = 0;
      for (let seed = 0; seed < 8; seed++) {
        const outcome = await session.run({
          tokens,
          maxTokens: 60,
          ignoreEndOfGeneration: true,
          sampler: { ...GREEDY, temperature: 0.8, seed },
          edits: [{ layer: 1, ...everywhere, vector: decoderRow(SEA_FEATURE, strength) }],
        });
        words += outcome.text.toString().match(seaWords)?.length ?? 0;
      }
      return words;
    };
    expect(await count(40)).toBeGreaterThan(2 * (await count(0)));
  });

  it("edits only the positions asked for and counts the rows it edited", async () => {
    const vector = decoderRow(SEA_FEATURE, 10);
    const outcome = await session.run({
      tokens,
      maxTokens: 5,
      edits: [
        { layer: 1, fromPosition: 2, toPosition: 4, vector },
        { layer: 1, fromPosition: tokens.length, toPosition: -1, vector },
        { layer: 2, fromPosition: 1000, toPosition: -1, vector },
      ],
    });
    expect([...outcome.finished.editedRows]).toEqual([2, 4, 0]);
  });

  it("sums the edits of one layer and shows a later layer the earlier edit", async () => {
    const capture = [1, 2].flatMap((layer) =>
      (["pre_steering", "post_steering"] as const).map((readPoint) => ({ layer, ...everywhere, readPoint })),
    );
    const first = decoderRow(SEA_FEATURE, 3);
    const second = decoderRow(117, 5);
    const both = await session.run({
      tokens,
      maxTokens: 1,
      capture,
      edits: [
        { layer: 1, ...everywhere, vector: first },
        { layer: 1, ...everywhere, vector: second },
      ],
    });
    const plain = await session.run({ tokens, maxTokens: 1, capture });
    expect(both.captured.get("0:3")).toEqual(plain.captured.get("0:3"));
    const sum = first.map((value, i) => value + (second[i] ?? 0));
    const expected = (plain.captured.get("0:3") ?? new Float32Array()).map((value, i) => value + (sum[i] ?? 0));
    expect(both.captured.get("1:3")).toEqual(expected);
    expect(both.captured.get("2:3")).not.toEqual(plain.captured.get("2:3"));
    expect(both.captured.get("3:3")).toEqual(both.captured.get("2:3"));
  });

  it("reads and edits every prompt position in the last layer too", async () => {
    const vector = decoderRow(SEA_FEATURE, 5);
    const outcome = await session.run({
      tokens,
      maxTokens: 4,
      edits: [{ layer: 3, ...everywhere, vector }],
      capture: [{ layer: 3, ...everywhere, readPoint: "post_steering" }],
    });
    expect(outcome.captured.size).toBe(tokens.length + 3);
    expect([...outcome.finished.editedRows]).toEqual([tokens.length + 3]);
  });

  it("senses before or after steering as asked, the same as encoding the captured row", async () => {
    const plans = (["pre_steering", "post_steering"] as const).map((readPoint) => ({
      sae,
      layer: 1,
      ...everywhere,
      readPoint,
      features: null,
      topK: 512,
    }));
    const outcome = await session.run({
      tokens,
      maxTokens: 3,
      edits: [{ layer: 1, ...everywhere, vector: decoderRow(SEA_FEATURE, 40) }],
      sensing: plans,
      capture: plans.map(({ readPoint }) => ({ layer: 1, ...everywhere, readPoint })),
    });
    for (const plan of [0, 1]) {
      for (let position = 0; position < tokens.length + 2; position++) {
        const all = sae.encode(outcome.captured.get(`${plan}:${position}`) ?? new Float32Array());
        const active = [...all.entries()].filter(([, value]) => value > 0);
        const sensed = [...(outcome.sensed.get(`${plan}:${position}`) ?? [])];
        expect(sensed.toSorted(([a], [b]) => a - b)).toEqual(active);
        expect(sensed.map(([, value]) => value)).toEqual(active.map(([, value]) => value).toSorted((a, b) => b - a));
      }
    }
    expect(outcome.sensed.get("1:3")?.get(SEA_FEATURE)).toBeGreaterThan(20);
  });

  it("keeps the largest features, or only those asked for", async () => {
    const plan = { sae, layer: 1, ...everywhere, readPoint: "pre_steering" as const };
    const features = Int32Array.from([SEA_FEATURE, 0, 117]);
    const outcome = await session.run({
      tokens: model.tokenize("the sailor saw the sea and the waves", true, false),
      maxTokens: 1,
      sensing: [
        { ...plan, features: null, topK: 512 },
        { ...plan, features: null, topK: 3 },
        { ...plan, features, topK: 0 },
      ],
    });
    let asked = 0;
    for (const [key, all] of outcome.sensed) {
      if (!key.startsWith("0:")) continue;
      const position = key.slice(2);
      expect([...(outcome.sensed.get(`1:${position}`) ?? [])]).toEqual([...all].slice(0, 3));
      const chosen = outcome.sensed.get(`2:${position}`) ?? new Map<number, number>();
      asked += chosen.size;
      expect([...chosen]).toEqual(
        [...features].filter((index) => all.has(index)).map((index) => [index, all.get(index)]),
      );
    }
    expect(asked).toBeGreaterThan(0);
  });

  it("holds JumpReLU strictly above its threshold and ReLU strictly above zero", async () => {
    const addon = await nativeAddon();
    const shape = { embeddingWidth: 2, featureCount: 3, applyDecoderBiasToInput: true };
    const encoderColumns = Float32Array.from([1, 0, 0, 1, -1, 0]);
    const encoderBias = Float32Array.from([0, 1, 0]);
    const decoderBias = Float32Array.from([1, 1]);
    const rows = Float32Array.from([3, 1, 3.5, 2, 0, 0]);
    const jump = addon.loadSae({
      ...shape,
      encoderColumns,
      encoderBias,
      decoderBias,
      activation: "jumprelu",
      threshold: Float32Array.from([2, 1, -5]),
    });
    expect([...jump.encode(rows)]).toEqual([0, 0, 0, 2.5, 2, 0, 0, 0, 1]);
    const relu = addon.loadSae({
      ...shape,
      encoderColumns,
      encoderBias,
      decoderBias,
      activation: "relu",
      threshold: new Float32Array(),
    });
    expect([...relu.encode(rows)]).toEqual([2, 1, 0, 2.5, 2, 0, 0, 0, 1]);
    relu.dispose();
    expect(() => relu.encode(rows)).toThrow(expect.objectContaining({ code: "disposed" }));
  });

  it("refuses SAEs and jobs whose shapes do not fit", async () => {
    const addon = await nativeAddon();
    expect(() => addon.loadSae({ ...tensors, encoderBias: new Float32Array(3) })).toThrow(
      refusal("sae_shape_mismatch"),
    );
    expect(() => addon.loadSae({ ...tensors, threshold: new Float32Array() })).toThrow(refusal("sae_shape_mismatch"));
    const narrow = addon.loadSae({
      embeddingWidth: 1,
      featureCount: 1,
      encoderColumns: new Float32Array(1),
      encoderBias: new Float32Array(1),
      decoderBias: new Float32Array(1),
      applyDecoderBiasToInput: false,
      activation: "relu",
      threshold: new Float32Array(),
    });
    const plan = { layer: 1, ...everywhere, readPoint: "pre_steering" as const, features: null, topK: 1 };
    expect(() => session.start({ tokens, sensing: [{ ...plan, sae: narrow }] })).toThrow(refusal("sae_shape_mismatch"));
    expect(() => session.start({ tokens, sensing: [{ ...plan, sae, features: Int32Array.from([512]) }] })).toThrow(
      refusal("invalid_argument"),
    );
    const vector = new Float32Array(128);
    expect(() => session.start({ tokens, edits: [{ layer: 4, ...everywhere, vector }] })).toThrow(
      refusal("invalid_argument"),
    );
    expect(() => session.start({ tokens, edits: [{ layer: 1, ...everywhere, vector: vector.subarray(1) }] })).toThrow(
      refusal("invalid_argument"),
    );
    expect(() => session.start({ tokens, edits: [{ layer: 1, ...everywhere, vector: vector.fill(NaN) }] })).toThrow(
      refusal("invalid_argument"),
    );
  });

  it("fails a job whose steering leaves no finite logits, and only that job", async () => {
    const neighbour = session.start({ tokens, sequenceId: 1, maxTokens: 30, ignoreEndOfGeneration: true });
    // Each is finite, their sum is not.
    const edit = { layer: 2, ...everywhere, vector: new Float32Array(128).fill(3e38) };
    const ruined = await session.run({ tokens, maxTokens: 30, edits: [edit, edit] });
    expect(ruined.finished).toMatchObject({ reason: "failed", errorCode: "non_finite_logits" });
    expect((await neighbour.outcome).finished.reason).toBe("length");
  });
});
