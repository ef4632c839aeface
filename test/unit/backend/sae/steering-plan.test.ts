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
const plan = (steering: unknown, attached: readonly AttachedSae[]) =>
  planSteering(steeringSchema.parse(steering), attached, sha256Hex);

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
    expect(edits).toEqual([{ layer: 1, fromPosition: 0, toPosition: -1, vector: Float32Array.of(-1, -3) }]);
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
    expect(applied.map(({ saeId, edit }) => [saeId, edit])).toEqual([
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
    expect(planSteering(steering === null ? null : steeringSchema.parse(steering), [one], sha256Hex)).toEqual(
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
      plan(steering, [one]).editDigest,
      plan(steering, [{ ...one, digest: "another file" }]).editDigest,
      plan(steering, [{ ...one, layer: 2 }]).editDigest,
      plan({ features: [{ index: 0, strength: 2.5 }] }, [one]).editDigest,
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

describe("the receipt of a plan", () => {
  const steering = plan({ features: [{ index: 0, strength: 2 }] }, [one]);

  it("tells nothing when the hook changed no row", () => {
    expect(receiptOf(appliedSteering(steering, Int32Array.of(0), 0))).toBe("none");
  });
  it("tells the edit when rows were changed, or when the answer stands on cells with the same edits", () => {
    expect(appliedSteering(steering, Int32Array.of(5), 0)).toHaveLength(1);
    expect(appliedSteering(steering, Int32Array.of(0), 3)).toHaveLength(1);
  });
});
