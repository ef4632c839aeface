import { createHash } from "node:crypto";
import { parseList } from "structured-headers";
import { describe, expect, it } from "vitest";
import {
  canonicalFormV1,
  steeringHash,
  type CanonicalEdit,
  type CanonicalSaeSet,
} from "../../../shared/steering/canonical-form.ts";
import { layerOfHookPoint, residualPostHookPoint } from "../../../shared/steering/hook-points.ts";
import { positionsText } from "../../../shared/steering/positions.ts";
import { hashOfReceipt, receiptOf } from "../../../shared/steering/receipt.ts";
import { clampEdit, effectiveSets, steeringSchema } from "../../../shared/steering/steering-set.ts";

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
  excludesSpecialTokens: false,
  features: Object.entries(strengths).map(([index, strength]) => ({
    index: Number(index),
    strength: clampEdit("add", strength, null).strength,
    mode: "add",
    unit: "raw",
    when: null,
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

describe("the second form of the hash", () => {
  const edit = (change: Partial<CanonicalEdit>): CanonicalEdit => ({
    index: 1,
    strength: 2,
    mode: "add",
    unit: "raw",
    when: null,
    ...change,
  });
  const hashOf = (features: CanonicalEdit[], change: Partial<CanonicalSaeSet> = {}) =>
    steeringHash([set("a", {}, { features, ...change })], sha256);

  it("covers mode, unit, positions, special tokens, condition and content, each apart from the others", () => {
    const when = { index: 3, op: ">", value: 1.5 } as const;
    const hashes = [
      hashOf([edit({})]),
      hashOf([edit({ mode: "set" })]),
      hashOf([edit({ mode: "scale" })]),
      hashOf([edit({ mode: "ablate", strength: 0 })]),
      hashOf([edit({ unit: "unit" })]),
      hashOf([edit({})], { positions: "prompt" }),
      hashOf([edit({})], { positions: "1-4" }),
      hashOf([edit({})], { excludesSpecialTokens: true }),
      hashOf([edit({ when })]),
      hashOf([edit({ when: { ...when, op: ">=" } })]),
      hashOf([edit({ when: { ...when, value: 2 } })]),
      hashOf([edit({ when: { ...when, index: 4 } })]),
      hashOf([edit({ mode: "set" })], { saeDigest: "01" }),
    ];
    expect(new Set(hashes).size).toBe(hashes.length);
  });

  it("is the digest of the lines it says, so that anybody can recompute it", () => {
    const features = [
      edit({ index: 9, mode: "ablate", strength: 0 }),
      edit({ index: 2, mode: "scale", strength: 1 }),
      edit({ mode: "set", unit: "max", when: { index: 7, op: "<", value: -1 } }),
    ];
    const lines = [
      "steerage.steering-set/v2",
      "sae=a",
      "digest=00",
      "layer=1",
      "positions=prompt",
      "special_tokens=excluded",
      "1:set:max:4000000000000000:when:7:<:bff0000000000000",
      "9:ablate:raw:0000000000000000",
    ];
    expect(hashOf(features, { positions: "prompt", excludesSpecialTokens: true })).toBe(
      sha256(lines.map((line) => `${line}\n`).join("")),
    );
  });
});

describe("positions", () => {
  it("are written one way however they were given", () => {
    expect(positionsText(undefined)).toBe("all");
    expect(positionsText("prompt")).toBe("prompt");
    expect(positionsText({ start: 3, end: 5 })).toBe("3-5");
    expect(
      positionsText([
        { start: 8, end: 9 },
        { start: 1, end: 3 },
        { start: 2, end: 4 },
        { start: 4, end: 6 },
      ]),
    ).toBe("1-6,8-9");
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

  it("says modes, positions, special tokens and the rows that activations decided", () => {
    const text = receiptOf([
      {
        saeId: "a",
        layer: 1,
        features: 2,
        hash: "00",
        clamped: false,
        modes: ["set", "ablate"],
        positions: "3-7,9-12",
        excludesSpecialTokens: true,
        rows: 0,
      },
    ]);
    expect(Object.fromEntries(parseList(text)[0]?.[1] ?? [])).toEqual({
      sae: "a",
      layer: 1,
      features: 2,
      hash: "00",
      modes: "ablate set",
      positions: "3-7,9-12",
      "no-special-tokens": true,
      rows: 0,
    });
  });

  it("names a profile with its intensity", () => {
    const applied = { saeId: "a", layer: 1, features: 1, hash: "ab".repeat(32), clamped: false };
    const text = receiptOf([{ ...applied, profile: { name: 'é;hash="00"', intensity: 1 / 3 } }]);
    const [item] = parseList(text);
    expect(String(item?.[0])).toBe("profile");
    expect(String(item?.[1].get("source"))).toBe("request");
    expect(Object.fromEntries(item?.[1] ?? [])).toMatchObject({
      name: '%C3%A9;hash="00"',
      intensity: 0.333,
      sae: "a",
      layer: 1,
      features: 1,
      hash: applied.hash,
    });
    expect(hashOfReceipt(text)).toBe(applied.hash);
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
    ["a feature set to a value", { features: [{ index: 1, strength: 3, mode: "set", unit: "max" }] }],
    ["an ablation without strength", { features: [{ index: 1, mode: "ablate" }] }],
    ["a list of ranges", { features: [], positions: [{ start: 0, end: 2 }] }],
    [
      "a condition per set",
      {
        features: [{ index: 1, strength: 2, mode: "scale" }],
        when: { index: 4, op: "<=", value: 0 },
        exclude_special_tokens: true,
      },
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
    ["a mode that does not exist", { features: [{ index: 1, strength: 1, mode: "replace" }] }],
    ["a missing strength", { features: [{ index: 1, mode: "set" }] }],
    ["an ablation with a strength", { features: [{ index: 1, strength: 2, mode: "ablate" }] }],
    ["a unit where the mode has none", { features: [{ index: 1, strength: 2, mode: "scale", unit: "max" }] }],
    ["an empty range", { features: [], positions: { start: 3, end: 3 } }],
    ["no range at all", { features: [], positions: [] }],
    ["an unknown comparison", { features: [], when: { index: 1, op: "==", value: 1 } }],
    [
      "a condition of the set beside one of a feature",
      {
        features: [{ index: 1, strength: 1, when: { index: 1, op: ">", value: 1 } }],
        when: { index: 1, op: ">", value: 1 },
      },
    ],
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
    ["add", 200, null, { strength: 200, clamped: false }],
    ["add", 200.5, null, { strength: 200, clamped: true }],
    ["add", -1e9, 3, { strength: -200, clamped: true }],
    ["add", 0, null, { strength: 0, clamped: false }],
    ["set", 12, 3, { strength: 12, clamped: false }],
    ["set", 13, 3, { strength: 12, clamped: true }],
    ["set", -1, 3, { strength: 0, clamped: true }],
    ["set", 1e9, null, { strength: 1_000, clamped: true }],
    ["scale", 10.5, null, { strength: 10, clamped: true }],
    ["scale", -2, null, { strength: 0, clamped: true }],
    ["ablate", 0, null, { strength: 0, clamped: false }],
  ] as const)("brings %s of %d with recorded maximum %s to %j", (mode, given, maximum, expected) => {
    expect(clampEdit(mode, given, maximum)).toEqual(expected);
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
