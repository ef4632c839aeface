import { describe, expect, it } from "vitest";
import { ActivationRows, SensedActivations } from "../../../../backend/sae/activation-rows.ts";
import type { AttachedSae } from "../../../../backend/sae/attached-sae.ts";
import { planSensing, planSensingSet } from "../../../../backend/sae/sensing-plan.ts";
import {
  activationRequestSchema,
  activationRequestsSchema,
  activationResultSchema,
} from "../../../../shared/steering/activations.ts";

const sae: AttachedSae = {
  id: "s",
  digest: "",
  layer: 1,
  hookPoint: "blocks.1.hook_resid_post",
  featureCount: 512,
  embeddingWidth: 1,
  decoderRows: new Float32Array(512),
};
const bounds = { promptTokens: 10, maxTokens: 5, layerCount: 4 };
const plan = (request: object, over: Partial<typeof bounds> = {}, attached = [sae]) =>
  planSensing(activationRequestSchema.parse(request), attached, { ...bounds, ...over });

describe("a sensing plan", () => {
  it.each([
    ["prompt", [0, 10]],
    ["completion", [10, -1]],
    ["all", [0, -1]],
    ["last", [9, -1]],
    [{ start: 2, end: 4 }, [2, 4]],
    [{ start: 2, end: 400 }, [2, 14]],
  ])("covers the rows of positions %j", (positions, [from, to]) => {
    expect(plan({ positions })).toMatchObject({ fromPosition: from, toPosition: to });
  });

  it("refuses a range that the request never reaches or that is empty", () => {
    expect(() => plan({ positions: { start: 14, end: 20 } })).toThrow(/positions 0 to 13/u);
    expect(() => plan({ positions: { start: 3, end: 3 } })).toThrow(/less than end/u);
  });

  it("bounds the answer before generation at 65,536 entries", () => {
    const most = { promptTokens: 1_024, maxTokens: 1 };
    expect(plan({ positions: "prompt", top_k: 64 }, most)).toBeDefined();
    expect(() => plan({ positions: "prompt", top_k: 64 }, { ...most, promptTokens: 1_025 })).toThrow(
      expect.objectContaining({ code: "sae_activations_refused", param: "return_sae_activations" }),
    );
    // One row whatever the length: the last one.
    expect(plan({ positions: "last", top_k: 64 }, { promptTokens: 9_000, maxTokens: 90_000 })).toBeDefined();
  });

  it("names the place of a feature that is out of range or named twice", () => {
    expect(() => plan({ features: [1, 512] })).toThrow(
      expect.objectContaining({ code: "invalid_feature_index", param: "return_sae_activations.features[1]" }),
    );
    expect(() => plan({ features: [1, 1] })).toThrow(
      expect.objectContaining({ param: "return_sae_activations.features[1]" }),
    );
  });

  it("refuses prompt rows after the last block, which keeps output rows only", () => {
    const last = [{ ...sae, layer: 3 }];
    expect(() => plan({ positions: "prompt" }, {}, last)).toThrow(
      expect.objectContaining({ code: "sae_activations_refused" }),
    );
    expect(plan({ positions: "completion" }, {}, last)).toBeDefined();
    expect(plan({}, {}, last)).toBeDefined();
  });

  it("refuses an unknown SAE by name", () => {
    expect(() => plan({ sae_id: "nope" })).toThrow(
      expect.objectContaining({ code: "sae_not_available", param: "return_sae_activations.sae_id" }),
    );
  });
});

const other = { ...sae, id: "t", layer: 2 };
const planSet = (request: unknown, streams = false, over: Partial<typeof bounds> = {}) =>
  planSensingSet(activationRequestsSchema.nullable().parse(request), [sae, other], { ...bounds, ...over, streams });

describe("sensing several SAEs", () => {
  const two = [
    { sae_id: "s", positions: "completion", top_k: 2 },
    { sae_id: "t", positions: "prompt", top_k: 2, stream: true },
  ];

  it("plans one after the other and computes from the earliest row on", () => {
    const set = planSet(two, true);
    expect(set).toMatchObject({ asList: true, fromPosition: 0, plans: [{ sae: { id: "s" } }, { sae: { id: "t" } }] });
    expect(planSet(null)).toBeNull();
  });

  it("bounds all of them together", () => {
    const most = { promptTokens: 1_024, maxTokens: 1 };
    const half = (id: string, k: number) => ({ sae_id: id, positions: "prompt", top_k: k });
    expect(planSet([half("s", 32), half("t", 32)], false, most)).not.toBeNull();
    expect(() => planSet([half("s", 32), half("t", 33)], false, most)).toThrow(
      expect.objectContaining({ code: "sae_activations_refused", param: "return_sae_activations" }),
    );
  });

  it.each([
    [[{ sae_id: "s" }, { sae_id: "nope" }], "return_sae_activations[1].sae_id"],
    [[{ sae_id: "s" }, { sae_id: "s" }], "return_sae_activations[1]"],
    [{ sae_id: "s", stream: true }, "return_sae_activations.stream"],
  ])("refuses %j by place", (request, param) => {
    expect(() => planSet(request)).toThrow(expect.objectContaining({ status: 400, param }));
  });

  it("tells streamed rows once, as they come, and the others at the end", () => {
    const set = planSet(two, true);
    if (set === null) throw new Error("nothing is sensed");
    const sensed = new SensedActivations(set);
    expect(sensed.take()).toBeNull();
    sensed.add({ ...rowsOf([0], [1], [7], [1]), planIndex: 1 });
    sensed.add({ ...rowsOf([10], [1], [8], [1]), planIndex: 0 });
    expect(sensed.take()).toMatchObject([{ sae_id: "t", positions: [{ position: 0 }] }]);
    expect(sensed.take()).toBeNull();
    sensed.add({ ...rowsOf([1], [1], [7], [1]), planIndex: 1 });
    expect(sensed.result()).toMatchObject([
      { sae_id: "s", positions: [{ position: 10 }] },
      { sae_id: "t", positions: [{ position: 1 }] },
    ]);
  });

  it("of one SAE has the form of the question", () => {
    const single = planSet({ sae_id: "s" });
    const listed = planSet([{ sae_id: "s" }]);
    const resultOf = (set: typeof single) => (set === null ? null : new SensedActivations(set).result());
    expect(resultOf(single)).toMatchObject({ sae_id: "s", positions: [] });
    expect(resultOf(listed)).toMatchObject([{ sae_id: "s", positions: [] }]);
  });
});

const rowsOf = (positions: number[], counts: number[], indices: number[], values: number[]) => ({
  jobId: 1,
  planIndex: 0,
  positions: Int32Array.from(positions),
  tokens: Int32Array.from(positions, (position) => 100 + position),
  counts: Int32Array.from(counts),
  indices: Int32Array.from(indices),
  values: Float32Array.from(values),
});

describe("sensed rows", () => {
  it("become positions in order with the largest value first", () => {
    const rows = new ActivationRows(plan({ positions: "all", top_k: 2 }));
    rows.add(rowsOf([1], [1], [7], [1]));
    rows.add(rowsOf([0], [3], [4, 5, 6], [1, 3, 2]));
    const result = rows.result();
    expect(activationResultSchema.parse(result).positions).toEqual([
      {
        position: 0,
        token_id: 100,
        features: [
          { index: 5, value: 3 },
          { index: 6, value: 2 },
        ],
      },
      { position: 1, token_id: 101, features: [{ index: 7, value: 1 }] },
    ]);
  });

  it("list every feature that was asked for, the silent ones with zero", () => {
    const rows = new ActivationRows(plan({ positions: "all", features: [3, 9] }));
    rows.add(rowsOf([0], [1], [9], [2]));
    expect(rows.result().positions[0]?.features).toEqual([
      { index: 9, value: 2 },
      { index: 3, value: 0 },
    ]);
  });

  it("keep only the last row that went through the model when that is wanted", () => {
    const rows = new ActivationRows(plan({ positions: "last" }));
    rows.add(rowsOf([9], [1], [1], [1]));
    rows.add(rowsOf([10], [1], [2], [2]));
    expect(rows.result().positions.map(({ position }) => position)).toEqual([10]);
  });
});
