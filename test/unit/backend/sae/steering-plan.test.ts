import { createHash } from "node:crypto";
import { describe, expect, it } from "vitest";
import { appliedSteering, planSteering, UNSTEERED } from "../../../../backend/sae/steering-plan.ts";
import type { AttachedSae } from "../../../../backend/sae/attached-sae.ts";
import { receiptOf } from "../../../../shared/steering/receipt.ts";
import { steeringSchema } from "../../../../shared/steering/steering-set.ts";

const sha256Hex = (text: string): string => createHash("sha256").update(text).digest("hex");

function sae(id: string, layer: number, rows: readonly (readonly number[])[], featureCount = rows.length): AttachedSae {
  const width = rows[0]?.length ?? 0;
  const decoderRows = new Float32Array(featureCount * width);
  rows.forEach((row, place) => decoderRows.set(row, place * width));
  return {
    id,
    digest: `digest of ${id}`,
    layer,
    hookPoint: `blocks.${layer}.hook_resid_post`,
    featureCount,
    embeddingWidth: width,
    decoderRows,
  };
}

const one = sae("one", 1, [
  [1, 0],
  [0, 2],
  [3, 3],
]);
const sameLayer = sae("same-layer", 1, [[10, 20]]);
const deeper = sae("deeper", 2, [[7, 7]]);
const SCOPE = { promptTokens: 10, maxTokens: 5, specialTokens: () => Int32Array.of(0, 99) };
const plan = (steering: unknown, attached: readonly AttachedSae[]) =>
  planSteering(steeringSchema.parse(steering), attached, SCOPE, sha256Hex);
const EVERYWHERE = [{ from: 0, to: -1 }];

describe("a steering plan", () => {
  it("adds strength times decoder row, features of one SAE summed", () => {
    const { edits } = plan(
      {
        features: [
          { index: 0, strength: 2 },
          { index: 2, strength: -1 },
        ],
      },
      [one],
    );
    expect(edits).toMatchObject([{ layer: 1, reach: { ranges: EVERYWHERE }, terms: null, condition: null }]);
    expect(edits[0]?.vector).toEqual(Float32Array.of(-1, -3));
  });

  it("sums SAEs of one layer into one edit and keeps layers apart", () => {
    const { edits, applied } = plan(
      [
        { sae_id: "deeper", features: [{ index: 0, strength: 1 }] },
        { sae_id: "one", features: [{ index: 1, strength: 1 }] },
        { sae_id: "same-layer", features: [{ index: 0, strength: 0.5 }] },
      ],
      [one, sameLayer, deeper],
    );
    expect(edits.map(({ layer, vector }) => [layer, ...vector])).toEqual([
      [1, 5, 12],
      [2, 7, 7],
    ]);
    expect(applied.map(({ saeId, edits: places }) => [saeId, ...places])).toEqual([
      ["deeper", 1],
      ["one", 0],
      ["same-layer", 0],
    ]);
  });

  it("brings a strength back to 200 and says so", () => {
    const { edits, applied } = plan({ features: [{ index: 0, strength: 500 }] }, [one]);
    expect(edits[0]?.vector).toEqual(Float32Array.of(200, 0));
    expect(receiptOf(applied)).toMatch(/;clamped$/u);
  });

  it.each([
    ["nothing", null],
    ["an empty set", { features: [] }],
    [
      "strengths of zero",
      {
        features: [
          { index: 0, strength: 0 },
          { index: 1, strength: -0 },
        ],
      },
    ],
  ])("leaves the answer unsteered for %s", (_, steering) => {
    expect(planSteering(steering === null ? null : steeringSchema.parse(steering), [one], SCOPE, sha256Hex)).toEqual(
      UNSTEERED,
    );
  });

  const gemma = "jbloom--gemma-2-2b-res-jb--layer_20--width_16k--average_l0_71";
  const liquid = "LiquidAI--LFM2.5-1.2B-Instruct-sae--layer_11";
  it.each([
    ["TV-1", liquid, [[1234, 8]], "a4eae730e5105f422b93abeece7e03bda3c29b096c07aa9cee6f247e12844105"],
    ["TV-2", liquid, [[1234, -8]], "cc6c48faa720096e5c65fc1b2afab1b9b87659fb4465f20db421a2ed7fed78a7"],
    [
      "TV-3",
      gemma,
      [
        [77, -2.5],
        [5, 0.1],
        [900, 0],
        [12, -0],
      ],
      "b843912201c5c18f872976e35af288e5f484d81e31a03a1dc16c3b9dbd82e710",
    ],
    ["TV-4", gemma, [[3, 500]], "3f51779e6e33ee248acf6f520cb9475b4ef62f68275060bb69d2e228033b78df"],
  ])("hashes miLLM's test vector %s to its published value", (_, id, features, hash) => {
    const big = sae(id, 11, [[1]], 2_000);
    const steering = { sae_id: id, features: features.map(([index, strength]) => ({ index, strength })) };
    expect(plan(steering, [big]).applied[0]?.hash).toBe(hash);
  });

  it("labels cells by content and layer, so that a changed file or strength shares no prefix", () => {
    const steering = { features: [{ index: 0, strength: 2 }] };
    const digests = [
      plan(steering, [one]).labels.editDigest,
      plan(steering, [{ ...one, digest: "another file" }]).labels.editDigest,
      plan(steering, [{ ...one, layer: 2 }]).labels.editDigest,
      plan({ features: [{ index: 0, strength: 2.5 }] }, [one]).labels.editDigest,
    ];
    expect(new Set(digests).size).toBe(4);
  });

  it("refuses an unknown SAE and names those that are attached", () => {
    expect(() => plan({ sae_id: "nope", features: [{ index: 0, strength: 1 }] }, [one, deeper])).toThrow(
      expect.objectContaining({
        code: "sae_not_available",
        param: "steering.sae_id",
        message: expect.stringContaining("one (layer 1), deeper (layer 2)"),
      }),
    );
  });

  it("asks for the id when several are attached, and needs none when one is", () => {
    const steering = { features: [{ index: 0, strength: 1 }] };
    expect(() => plan(steering, [one, deeper])).toThrow(
      expect.objectContaining({ param: "steering.sae_id", message: expect.stringContaining("deeper (layer 2)") }),
    );
    expect(plan(steering, [deeper]).applied[0]?.saeId).toBe("deeper");
    expect(() => plan(steering, [])).toThrow(expect.objectContaining({ code: "sae_not_available" }));
  });

  it("names the place of an index out of range in both forms", () => {
    const features = [
      { index: 0, strength: 1 },
      { index: 3, strength: 1 },
    ];
    expect(() => plan({ features }, [one])).toThrow(
      expect.objectContaining({ code: "invalid_feature_index", param: "steering.features[1].index" }),
    );
    expect(() =>
      plan(
        [
          { sae_id: "deeper", features: [{ index: 0, strength: 1 }] },
          { sae_id: "one", features },
        ],
        [one, deeper],
      ),
    ).toThrow(expect.objectContaining({ code: "invalid_feature_index", param: "steering[1].features[1].index" }));
  });

  it("refuses two sets that turn out to mean the same SAE", () => {
    const features = [{ index: 0, strength: 1 }];
    expect(() => plan([{ features }, { sae_id: "one", features }], [one])).toThrow(
      expect.objectContaining({ code: "invalid_steering", param: "steering[1].sae_id" }),
    );
  });
});

describe("modes, units and conditions", () => {
  const known: AttachedSae = { ...one, recordedMaxima: new Map([[0, 10]]) };
  const feature = (value: object, attached = known) => plan({ features: [value] }, [attached]).edits[0];

  it.each([
    ["set", { mode: "set", strength: 6 }, 6, -1],
    ["ablate", { mode: "ablate" }, 0, -1],
    ["scale", { mode: "scale", strength: 3 }, 0, 2],
    ["a scale of nothing", { mode: "scale", strength: 0 }, 0, -1],
  ])("%s is an offset and a gain on the feature's direction", (_, value, offset, gain) => {
    const edit = feature({ index: 1, ...value });
    expect(edit?.vector).toHaveLength(0);
    expect(edit?.terms).toMatchObject({ sae: known, features: Int32Array.of(1), directions: Float32Array.of(0, 2) });
    expect([edit?.terms?.offsets, edit?.terms?.gains]).toEqual([Float32Array.of(offset), Float32Array.of(gain)]);
  });

  it("leaves out a scale of one, which changes nothing", () => {
    expect(plan({ features: [{ index: 0, strength: 1, mode: "scale" }] }, [one])).toEqual(UNSTEERED);
  });

  it("turns units into raw strengths: the row's length for 'unit', the recorded maximum for 'max'", () => {
    expect(feature({ index: 1, strength: 6, unit: "unit" })?.vector).toEqual(Float32Array.of(0, 6));
    expect(feature({ index: 0, strength: 0.5, unit: "max" })?.vector).toEqual(Float32Array.of(5, 0));
    expect(feature({ index: 0, strength: 0.5, unit: "max", mode: "set" })?.terms?.offsets).toEqual(Float32Array.of(5));
    expect(feature({ index: 1, strength: 6, unit: "unit", mode: "set" })?.terms?.offsets).toEqual(Float32Array.of(3));
  });

  it("clamps after the conversion and says so", () => {
    const { applied, edits } = plan({ features: [{ index: 0, strength: 5, unit: "max", mode: "set" }] }, [known]);
    expect(edits[0]?.terms?.offsets).toEqual(Float32Array.of(40));
    expect(applied[0]).toMatchObject({ clamped: true, modes: ["set"] });
  });

  it.each([
    ["a maximum that is not recorded", { index: 1, strength: 1, unit: "max" }, "steering.features[0].unit"],
    [
      "a condition on a feature that does not exist",
      { index: 1, strength: 1, when: { index: 3, op: ">", value: 0 } },
      "steering.features[0].when.index",
    ],
  ])("refuses %s", (_, value, param) => {
    expect(() => feature(value)).toThrow(expect.objectContaining({ status: 400, param }));
  });

  it("refuses the unit of a direction of zeros", () => {
    const silent = sae("silent", 1, [[0, 0]]);
    expect(() => feature({ index: 0, strength: 1, unit: "unit" }, silent)).toThrow(
      expect.objectContaining({ param: "steering.features[0].unit" }),
    );
  });

  it("keeps edits of different conditions apart and sums those of the same", () => {
    const when = { index: 2, op: ">", value: 1.5 };
    const { edits, applied } = plan(
      {
        features: [
          { index: 0, strength: 1, when },
          { index: 1, strength: 1, when },
          { index: 2, strength: 1 },
        ],
      },
      [one],
    );
    expect(edits.map(({ condition, vector }) => [condition?.index, ...vector])).toEqual([
      [2, 1, 2],
      [undefined, 3, 3],
    ]);
    expect(applied[0]).toMatchObject({ edits: [0, 1], dependsOnActivations: true });
  });

  it("gives every feature the condition of its set", () => {
    const set = { features: [{ index: 0, strength: 1 }], when: { index: 1, op: "<", value: 2 } };
    expect(plan(set, [one]).edits[0]?.condition).toMatchObject({ index: 1, op: "<", value: 2, sae: one });
  });
});

describe("positions of a plan", () => {
  const features = [{ index: 0, strength: 2 }];
  const reachOf = (positions: unknown, more: object = {}) =>
    plan({ features, positions, ...more }, [one]).edits[0]?.reach;

  it.each([
    ["prompt", [{ from: 0, to: 10 }]],
    ["completion", [{ from: 10, to: -1 }]],
    [{ start: 2, end: 4 }, [{ from: 2, to: 4 }]],
    [
      [
        { start: 8, end: 12 },
        { start: 1, end: 3 },
      ],
      [
        { from: 1, to: 3 },
        { from: 8, to: 12 },
      ],
    ],
  ])("%j reach their rows only", (positions, ranges) => {
    expect(reachOf(positions)?.ranges).toEqual(ranges);
  });

  it("leave the model's control tokens out where asked", () => {
    const reach = reachOf("all", { exclude_special_tokens: true });
    expect([reach?.includes(3, 99), reach?.includes(3, 98)]).toEqual([false, true]);
  });

  it("beyond the longest answer are refused by name", () => {
    expect(() => reachOf({ start: 14, end: 20 })).toThrow(
      expect.objectContaining({ code: "invalid_steering", param: "steering.positions.start" }),
    );
    expect(reachOf({ start: 13, end: 20 })?.ranges).toEqual([{ from: 13, to: 20 }]);
  });
});

describe("the labels of cells", () => {
  const features = [{ index: 0, strength: 2 }];
  const labels = (steering: unknown, attached = [one]) => plan(steering, attached).labels;
  const everywhere = labels({ features });

  it("are equal where the same edits reach a position, however the positions were said", () => {
    const prompt = labels({ features, positions: "prompt" });
    const range = labels({ features, positions: { start: 4, end: 14 } });
    expect(prompt.editDigest).not.toBe(range.editDigest);
    expect([3, 4, 9, 10].map((at) => prompt.editAt?.(at, 7) === everywhere.editDigest)).toEqual([
      true,
      true,
      true,
      false,
    ]);
    expect([3, 4, 9, 13].map((at) => range.editAt?.(at, 7) === everywhere.editDigest)).toEqual([
      false,
      true,
      true,
      true,
    ]);
    expect([prompt.editAt?.(10, 7), range.editAt?.(3, 7)]).toEqual(["", ""]);
  });

  it("of control tokens are bare where those are left out", () => {
    const spared = labels({ features, exclude_special_tokens: true });
    expect([spared.editAt?.(3, 99), spared.editAt?.(3, 1)]).toEqual(["", everywhere.editDigest]);
  });

  it("count a condition as an edit, whether it holds or not", () => {
    const when = { index: 1, op: ">", value: 1 };
    const conditional = labels({ features, when });
    expect(conditional.editDigest).not.toBe(everywhere.editDigest);
    expect(labels({ features, when: { ...when, value: 2 } }).editDigest).not.toBe(conditional.editDigest);
  });

  it("tell which of several sets reach a position", () => {
    const both = [
      { sae_id: "one", features, positions: "prompt" },
      { sae_id: "deeper", features: [{ index: 0, strength: 1 }] },
    ];
    const split = labels(both, [one, deeper]);
    expect(split.editAt?.(10, 7)).toBe(labels(both[1], [one, deeper]).editDigest);
    expect(split.editAt?.(9, 7)).toBe(labels([{ ...both[0], positions: "all" }, both[1]], [one, deeper]).editDigest);
  });
});

describe("the receipt of a plan", () => {
  const steering = plan({ features: [{ index: 0, strength: 2 }] }, [one]);
  const seen = (rows: number, cachedTokens: number) => ({ editedRows: Int32Array.of(rows), cachedTokens, rows: 12 });

  it("tells nothing when the hook changed no row", () => {
    expect(receiptOf(appliedSteering(steering, seen(0, 0)))).toBe("none");
  });
  it("tells the edit when rows were changed, or when the answer stands on cells with the same edits", () => {
    expect(appliedSteering(steering, seen(5, 0))).toHaveLength(1);
    expect(appliedSteering(steering, seen(0, 3))).toHaveLength(1);
  });
  it("does not count cached cells that lie before the edit", () => {
    const later = plan({ features: [{ index: 0, strength: 2 }], positions: { start: 11, end: 14 } }, [one]);
    expect(appliedSteering(later, seen(0, 11))).toEqual([]);
    expect(appliedSteering(later, seen(0, 12))).toHaveLength(1);
  });
  it("tells how many rows activations chose, and says so when they chose none", () => {
    const ablation = plan({ features: [{ index: 0, mode: "ablate" }] }, [one]);
    expect(receiptOf(appliedSteering(ablation, seen(4, 0)))).toMatch(/;modes="ablate";rows=4$/u);
    expect(receiptOf(appliedSteering(ablation, seen(0, 0)))).toMatch(/;rows=0$/u);
    const never = plan({ features: [{ index: 0, mode: "ablate" }], positions: { start: 12, end: 14 } }, [one]);
    expect(appliedSteering(never, seen(0, 0))).toEqual([]);
  });
});
