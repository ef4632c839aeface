import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { NativeModel, NativeSae, ResidualEdit } from "../../backend/native/binding.ts";
import { encodeRow, outputScaleOf } from "../../backend/sae/encoder.ts";
import { DEMO_F32, NativeSession, nativeAddon, openModel, type JobOutcome } from "../support/native-harness.ts";
import { demoSae } from "../support/sae-fixture.ts";

const PROMPT = "the sailor saw the sea and the waves. Once upon a time there was a";
const LAYER = 1;
const MAX_TOKENS = 6;
const TOLERANCE = 1e-4;

/** One factor per feature, as the reference computes it from the row's activations. */
type Factors = (activations: Float32Array) => ReadonlyMap<number, number>;

describe("edits that depend on activations", () => {
  let model: NativeModel;
  let session: NativeSession;
  let sae: NativeSae;
  let tokens: Int32Array;
  /** Two features that are active somewhere in the text, and one that never is. */
  let busy: number;
  let other: number;
  let silent: number;
  let activity: number[];
  const tensors = demoSae("demo-l1");
  const width = tensors.embeddingWidth;
  const everywhere = { layer: LAYER, fromPosition: 0, toPosition: -1 };
  const capture = (["pre_steering", "post_steering"] as const).map((readPoint) => ({ ...everywhere, readPoint }));

  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    session = await NativeSession.open(model);
    sae = (await nativeAddon()).loadSae(tensors);
    tokens = model.tokenize(PROMPT, true, false);
    const plain = await run([]);
    const activeRows = new Float32Array(tensors.featureCount);
    for (const [, pre] of rowsOf(plain)) {
      encodeRow(tensors, pre).forEach(
        (value, feature) => (activeRows[feature] = (activeRows[feature] ?? 0) + +(value > 0)),
      );
    }
    const ranked = [...activeRows.keys()].toSorted((a, b) => (activeRows[b] ?? 0) - (activeRows[a] ?? 0));
    // Active on some rows and silent on others, so that both sides of every rule are met.
    const partly = ranked.filter((feature) => (activeRows[feature] ?? 0) < rowsOf(plain).length);
    [busy = 0, other = 0] = partly;
    silent = ranked.at(-1) ?? 0;
    activity = [busy, other, silent].map((feature) => activeRows[feature] ?? 0);
  });
  afterAll(async () => {
    await session.context.dispose();
    await model.dispose();
  });

  const run = (edits: ResidualEdit[]) =>
    session.run({ tokens, maxTokens: MAX_TOKENS, ignoreEndOfGeneration: true, edits, capture });

  /** Position, row before and row after, of every row that went through the model. */
  function rowsOf({ captured }: JobOutcome): [number, Float32Array, Float32Array][] {
    const rows: [number, Float32Array, Float32Array][] = [];
    for (let position = 0; position < tokens.length + MAX_TOKENS - 1; position += 1) {
      const [pre, post] = [0, 1].map((plan) => captured.get(`${plan}:${position}`) ?? new Float32Array());
      if (pre !== undefined && post !== undefined) rows.push([position, pre, post]);
    }
    return rows;
  }

  const direction = (feature: number): Float32Array =>
    tensors.decoderRows.subarray(feature * width, (feature + 1) * width);

  function terms(entries: readonly { feature: number; offset: number; gain: number }[]): ResidualEdit {
    const directions = new Float32Array(entries.length * width);
    entries.forEach(({ feature }, place) => directions.set(direction(feature), place * width));
    return {
      ...everywhere,
      vector: new Float32Array(0),
      terms: {
        sae,
        features: Int32Array.from(entries, ({ feature }) => feature),
        offsets: Float32Array.from(entries, ({ offset }) => offset),
        gains: Float32Array.from(entries, ({ gain }) => gain),
        directions,
      },
    };
  }

  /** How far the captured rows are from the reference at most, and how many rows it changes. */
  function against(
    outcome: JobOutcome,
    factors: Factors,
    reaches: (position: number) => boolean = () => true,
  ): { furthest: number; changed: number } {
    let changed = 0;
    let furthest = 0;
    for (const [position, pre, post] of rowsOf(outcome)) {
      const expected = Float64Array.from(pre);
      const chosen = reaches(position) ? factors(encodeRow(tensors, pre)) : new Map<number, number>();
      for (const [feature, factor] of chosen) {
        direction(feature).forEach((value, i) => (expected[i] = (expected[i] ?? 0) + factor * value));
      }
      if ([...chosen.values()].some((factor) => factor !== 0)) changed += 1;
      const scale = Math.max(1, ...expected.map(Math.abs));
      post.forEach((value, i) => (furthest = Math.max(furthest, Math.abs(value - (expected[i] ?? NaN)) / scale)));
    }
    return { furthest, changed };
  }

  const rowCount = (): number => tokens.length + MAX_TOKENS - 1;

  it("are tried on features that are active on some rows only, and on one that never is", () => {
    expect(activity[0]).toBeGreaterThanOrEqual(2);
    expect(activity[1]).toBeGreaterThanOrEqual(2);
    expect(Math.max(...activity)).toBeLessThan(rowCount());
    expect(activity[2]).toBe(0);
  });

  const active = (activations: Float32Array, feature: number): number => activations[feature] ?? Number.NaN;

  it.each([
    ["set", 7, -1],
    ["ablate", 0, -1],
    ["scale", 0, 2.5],
  ])("%s: every row is the reference's, and exactly the rows it changes are counted", async (_, offset, gain) => {
    const entries = [busy, other, silent].map((feature) => ({ feature, offset, gain }));
    const outcome = await run([terms(entries)]);
    const { furthest, changed } = against(
      outcome,
      (activations) => new Map(entries.map(({ feature }) => [feature, offset + gain * active(activations, feature)])),
    );
    expect(furthest).toBeLessThanOrEqual(TOLERANCE);
    expect([...outcome.finished.editedRows]).toEqual([changed]);
    expect(changed < rowCount()).toBe(offset === 0);
  });

  it("lowers the activation of a feature that is ablated and keeps the bits of rows where it was silent", async () => {
    const rows = rowsOf(await run([terms([{ feature: busy, offset: 0, gain: -1 }])])).map(([, pre, post]) => ({
      was: active(encodeRow(tensors, pre), busy),
      is: active(encodeRow(tensors, post), busy),
      kept: pre.every((value, i) => value === post[i]),
    }));
    expect(rows.some(({ was }) => was > 0)).toBe(true);
    expect(rows.every(({ was, is, kept }) => (was > 0 ? is < was : kept))).toBe(true);
  });

  it("computes all edits of a layer from the same row, whatever their order", async () => {
    const edits = [
      { ...everywhere, vector: direction(other).map((value) => 9 * value) },
      terms([{ feature: busy, offset: 4, gain: -1 }]),
      terms([{ feature: other, offset: 0, gain: -1 }]),
    ];
    const factors: Factors = (activations) =>
      new Map([
        [busy, 4 - active(activations, busy)],
        [other, 9 - active(activations, other)],
      ]);
    expect(against(await run(edits), factors).furthest).toBeLessThanOrEqual(TOLERANCE);
    expect(against(await run(edits.toReversed()), factors).furthest).toBeLessThanOrEqual(TOLERANCE);
  });

  it("is linear: twice the strength is twice the change", async () => {
    const vector = direction(busy).map((value) => 3 * value);
    const prompt = { layer: LAYER, fromPosition: 0, toPosition: tokens.length };
    const [once, twice] = [
      await run([{ ...prompt, vector }]),
      await run([{ ...prompt, vector: vector.map((value) => 2 * value) }]),
    ].map((outcome) => rowsOf(outcome).slice(0, tokens.length));
    expect(once).toHaveLength(tokens.length);
    for (const [place, [, pre, post]] of (once ?? []).entries()) {
      const [, otherPre, otherPost] = twice?.[place] ?? [0, new Float32Array(), new Float32Array()];
      expect(otherPre).toEqual(pre);
      const changes = pre.map((value, i) => (post[i] ?? 0) - value);
      const furthest = Math.max(
        ...changes.map((change, i) => Math.abs((otherPost[i] ?? 0) - (otherPre[i] ?? 0) - 2 * change)),
      );
      expect(furthest).toBeLessThan(TOLERANCE);
      expect(Math.max(...changes.map((change, i) => Math.abs(change - (vector[i] ?? 0))))).toBeLessThan(TOLERANCE);
    }
  });

  it("touches the chosen positions and no other", async () => {
    const vector = direction(busy).map((value) => 5 * value);
    const ranges = Int32Array.of(1, 3, 6, 7, tokens.length + 1, -1);
    const outcome = await run([{ ...everywhere, vector, ranges }]);
    const chosen = (at: number) => at === 1 || at === 2 || at === 6 || at > tokens.length;
    for (const [position, pre, post] of rowsOf(outcome)) {
      expect({ position, edited: pre.some((value, i) => value !== post[i]) }).toEqual({
        position,
        edited: chosen(position),
      });
    }
    expect([...outcome.finished.editedRows]).toEqual([3 + MAX_TOKENS - 2]);
  });

  it("leaves rows of excluded tokens alone", async () => {
    const excludedTokens = Int32Array.of(tokens[4] ?? 0, tokens[0] ?? 0);
    const outcome = await run(
      [terms([{ feature: busy, offset: 4, gain: 0 }])].map((edit) => ({ ...edit, excludedTokens })),
    );
    const spoken = [...tokens, ...outcome.tokens];
    const spared = (at: number) => excludedTokens.includes(spoken[at] ?? -1);
    expect(tokens.some((_, at) => !spared(at))).toBe(true);
    const { furthest, changed } = against(
      outcome,
      () => new Map([[busy, 4]]),
      (at) => !spared(at),
    );
    expect(furthest).toBeLessThanOrEqual(TOLERANCE);
    expect([...outcome.finished.editedRows]).toEqual([changed]);
  });

  it.each([
    [">", (value: number, bound: number) => value > bound],
    [">=", (value: number, bound: number) => value >= bound],
    ["<", (value: number, bound: number) => value < bound],
    ["<=", (value: number, bound: number) => value <= bound],
  ] as const)("edits only rows where the condition %s holds", async (comparison, holds) => {
    for (const value of [0, 2]) {
      const condition = { sae, feature: busy, comparison, value };
      const outcome = await run([{ ...terms([{ feature: other, offset: 6, gain: -1 }]), condition }]);
      const { furthest, changed } = against(outcome, (activations) =>
        holds(active(activations, busy), value) ? new Map([[other, 6 - active(activations, other)]]) : new Map(),
      );
      expect(furthest).toBeLessThanOrEqual(TOLERANCE);
      expect([...outcome.finished.editedRows]).toEqual([changed]);
    }
  });

  it("decides a condition from the row before any edit, not from what an earlier edit made of it", async () => {
    const condition = { sae, feature: busy, comparison: ">" as const, value: 0 };
    const vector = direction(other).map((value) => 6 * value);
    const outcome = await run([terms([{ feature: busy, offset: 0, gain: -1 }]), { ...everywhere, vector, condition }]);
    const { furthest, changed } = against(outcome, (activations) => {
      const present = active(activations, busy);
      return present > 0
        ? new Map([
            [busy, -present],
            [other, 6],
          ])
        : new Map();
    });
    expect(furthest).toBeLessThanOrEqual(TOLERANCE);
    expect([...outcome.finished.editedRows]).toEqual([changed, changed]);
  });

  it.each(["layer_norm", "constant_norm"] as const)("sets in the units of a row under %s", async (normalization) => {
    const normalised = { ...tensors, normalization };
    const own = (await nativeAddon()).loadSae(normalised);
    const edit = terms([{ feature: busy, offset: 3, gain: -1 }]);
    const outcome = await run(edit.terms ? [{ ...edit, terms: { ...edit.terms, sae: own } }] : []);
    let furthest = 0;
    for (const [, pre, post] of rowsOf(outcome)) {
      const factor = (3 - active(encodeRow(normalised, pre), busy)) * outputScaleOf(normalised, pre);
      post.forEach((value, i) => {
        furthest = Math.max(furthest, Math.abs(value - (pre[i] ?? NaN) - factor * (direction(busy)[i] ?? NaN)));
      });
    }
    expect(outputScaleOf(normalised, rowsOf(outcome)[0]?.[1] ?? new Float32Array())).not.toBeCloseTo(1, 1);
    expect(furthest).toBeLessThanOrEqual(TOLERANCE * 10);
    own.dispose();
  });

  it("refuses terms and conditions that do not fit", () => {
    const good = terms([{ feature: busy, offset: 1, gain: 0 }]);
    const faults: Partial<ResidualEdit>[] = [
      { vector: new Float32Array(width) },
      {
        terms: {
          sae,
          features: Int32Array.of(512),
          offsets: new Float32Array(1),
          gains: new Float32Array(1),
          directions: new Float32Array(width),
        },
      },
      {
        terms: {
          sae,
          features: Int32Array.of(1),
          offsets: new Float32Array(2),
          gains: new Float32Array(1),
          directions: new Float32Array(width),
        },
      },
      {
        terms: {
          sae,
          features: Int32Array.of(1),
          offsets: new Float32Array(1),
          gains: new Float32Array(1),
          directions: new Float32Array(3),
        },
      },
      { condition: { sae, feature: -1, comparison: ">", value: 0 } },
      { ranges: Int32Array.of(1) },
    ];
    for (const fault of faults) {
      expect(() => session.start({ tokens, edits: [{ ...good, ...fault }] })).toThrow(
        expect.objectContaining({ code: "invalid_argument" }),
      );
    }
  });
});
