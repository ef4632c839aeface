import { createHash } from "node:crypto";
import { parseList } from "structured-headers";
import { describe, expect, it } from "vitest";
import { canonicalFormV1, steeringHash, type CanonicalSaeSet } from "../../../shared/steering/canonical-form.ts";
import { layerOfHookPoint, residualPostHookPoint } from "../../../shared/steering/hook-points.ts";
import { hashOfReceipt, receiptOf } from "../../../shared/steering/receipt.ts";
import { clampStrength, effectiveSets, steeringSchema } from "../../../shared/steering/steering-set.ts";

const sha256 = (text: string) => createHash("sha256").update(text, "utf8").digest("hex");
const LIQUID = "LiquidAI--LFM2.5-1.2B-Instruct-sae--layer_11";
const GEMMA = "jbloom--gemma-2-2b-res-jb--layer_20--width_16k--average_l0_71";
const set = (
  saeId: string,
  strengths: Record<number, number>,
  change: Partial<CanonicalSaeSet> = {},
): CanonicalSaeSet => ({
  saeId,
  saeDigest: "00",
  layer: 1,
  positions: "all",
  features: Object.entries(strengths).map(([index, strength]) => ({
    index: Number(index),
    strength: clampStrength(strength).strength,
    mode: "add",
    unit: "raw",
  })),
  ...change,
});

describe("the steering-set hash", () => {
  it.each([
    ["TV-1", set(LIQUID, { 1234: 8 }), "a4eae730e5105f422b93abeece7e03bda3c29b096c07aa9cee6f247e12844105"],
    ["TV-2", set(LIQUID, { 1234: -8 }), "cc6c48faa720096e5c65fc1b2afab1b9b87659fb4465f20db421a2ed7fed78a7"],
    [
      "TV-3",
      set(GEMMA, { 77: -2.5, 5: 0.1, 900: 0, 12: -0 }),
      "b843912201c5c18f872976e35af288e5f484d81e31a03a1dc16c3b9dbd82e710",
    ],
    ["TV-4", set(GEMMA, { 3: 500 }), "3f51779e6e33ee248acf6f520cb9475b4ef62f68275060bb69d2e228033b78df"],
  ])("equals miLLM's test vector %s", (_name, one, expected) => {
    expect(steeringHash([one], sha256)).toBe(expected);
    expect(sha256(canonicalFormV1(one.saeId, one.features))).toBe(expected);
  });

  it("changes with the file's content, the layer and the order-free set once v1 cannot say it", () => {
    const two = [set("a", { 1: 2 }), set("b", { 3: 4 }, { layer: 2 })];
    const hash = steeringHash(two, sha256);
    expect(steeringHash(two.toReversed(), sha256)).toBe(hash);
    expect(steeringHash([set("a", { 1: 2 }, { saeDigest: "01" }), set("b", { 3: 4 }, { layer: 2 })], sha256)).not.toBe(
      hash,
    );
    expect(steeringHash([set("a", { 1: 2 }), set("b", { 3: 4 }, { layer: 3 })], sha256)).not.toBe(hash);
  });
});

describe("the receipt", () => {
  it("is a structured list by layer, then id", () => {
    const hash = "ab".repeat(32);
    const text = receiptOf([
      { saeId: "z", layer: 2, features: 1, hash, clamped: false },
      { saeId: 'say "hi"\\', layer: 1, features: 3, hash, clamped: true },
    ]);
    const parsed = parseList(text);
    expect(parsed.map(([item]) => String(item))).toEqual(["inline", "inline"]);
    expect(Object.fromEntries(parsed[0]?.[1] ?? [])).toEqual({
      sae: 'say "hi"\\',
      layer: 1,
      features: 3,
      hash,
      clamped: true,
    });
    expect(Object.fromEntries(parsed[1]?.[1] ?? [])).toEqual({ sae: "z", layer: 2, features: 1, hash });
    expect(hashOfReceipt(text)).toBe(hash);
  });

  it("stays a legal header whatever an SAE is called", () => {
    const text = receiptOf([{ saeId: "mer\r\nx: y é 50%", layer: 0, features: 1, hash: "00", clamped: false }]);
    expect(text).toMatch(/^[\x20-\x7e]+$/);
    expect(Object.fromEntries(parseList(text)[0]?.[1] ?? [])["sae"]).toBe("mer%0D%0Ax: y %C3%A9 50%25");
  });

  it("of an unsteered answer is the item none", () => {
    expect(receiptOf([])).toBe("none");
    expect(hashOfReceipt("none")).toBeNull();
  });
});

const fault = (value: unknown) => {
  const result = steeringSchema.safeParse(value);
  return result.success ? null : result.error.issues;
};

describe("the steering member", () => {
  it.each([
    ["one set", { sae_id: "a", features: [{ index: 1, strength: -3.5 }] }],
    [
      "a list",
      [
        { sae_id: "a", features: [{ index: 1, strength: 1 }] },
        { sae_id: "b", features: [{ index: 1, strength: 1 }] },
      ],
    ],
    ["explicitly unsteered", { features: [] }],
    [
      "the spelled-out defaults",
      { sae_id: "a", features: [{ index: 1, strength: 1, mode: "add", unit: "raw" }], positions: "all" },
    ],
  ])("takes %s", (_name, value) => {
    expect(fault(value)).toBeNull();
  });
  it.each([
    [
      "a duplicate index",
      {
        features: [
          { index: 1, strength: 1 },
          { index: 1, strength: 2 },
        ],
      },
    ],
    [
      "an SAE named twice",
      [
        { sae_id: "a", features: [] },
        { sae_id: "a", features: [] },
      ],
    ],
    ["a strength that is not finite", { features: [{ index: 1, strength: JSON.parse("1e999") as unknown }] }],
    ["a negative index", { features: [{ index: -1, strength: 1 }] }],
    ["a broken index", { features: [{ index: 1.5, strength: 1 }] }],
    ["a textual index", { features: [{ index: "7", strength: 1 }] }],
    ["a mode that is not built", { features: [{ index: 1, strength: 1, mode: "set" }] }],
    ["a member that is not known", { features: [{ index: 1, strength: 1 }], layer: 3 }],
    ["an SAE beside an empty set", { sae_id: "a", features: [] }],
  ])("refuses %s", (_name, value) => {
    expect(fault(value)).not.toBeNull();
  });
  it("leaves nothing of a set without features", () => {
    expect(effectiveSets({ features: [] })).toEqual([]);
    expect(effectiveSets(undefined)).toEqual([]);
  });
  it.each([
    [200, 200, false],
    [200.5, 200, true],
    [-1e9, -200, true],
    [0, 0, false],
  ])("clamps %d to %d", (given, expected, clamped) => {
    expect(clampStrength(given)).toEqual({ strength: expected, clamped });
  });
});

describe("hook points", () => {
  it("name the residual after a block", () => {
    expect(layerOfHookPoint(residualPostHookPoint(12))).toBe(12);
    expect(layerOfHookPoint("blocks.12.hook_resid_pre")).toBe(11);
    expect(layerOfHookPoint("blocks.0.hook_resid_pre")).toBeNull();
    expect(layerOfHookPoint("blocks.3.hook_mlp_out")).toBeNull();
  });
});
