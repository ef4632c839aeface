import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import type { LoadedSae } from "../../backend/engine/engine-model.ts";
import { nativeEdits } from "../../backend/engine/sae-jobs.ts";
import { planSteering } from "../../backend/sae/steering-plan.ts";
import type { NativeModel, NativeSae } from "../../backend/native/binding.ts";
import { DEMO_F32, NativeSession, nativeAddon, openModel } from "../support/native-harness.ts";
import { demoSae } from "../support/sae-fixture.ts";

const FEATURE = 501;
const STRENGTH = 6;

/** What a strength does to the residual must not depend on how a dictionary was trained or stored. */
describe("the length of the change that a strength makes (C126)", () => {
  const tensors = demoSae("demo-l1");
  const width = tensors.embeddingWidth;
  let model: NativeModel;
  let session: NativeSession;
  let tokens: Int32Array;
  const natives: NativeSae[] = [];
  beforeAll(async () => {
    model = await openModel(DEMO_F32);
    session = await NativeSession.open(model);
    tokens = model.tokenize("Once upon a time", true, false);
  });
  afterAll(async () => {
    for (const native of natives) native.dispose();
    await session.context.dispose();
    await model.dispose();
  });

  /** The demo's dictionary with decoder rows of another length, read with or without the decoder's bias. */
  async function dictionary(rowLength: number, applyDecoderBiasToInput: boolean): Promise<LoadedSae> {
    const native = (await nativeAddon()).loadSae({ ...tensors, applyDecoderBiasToInput });
    natives.push(native);
    return {
      id: "sae",
      digest: `${rowLength} ${applyDecoderBiasToInput}`,
      layer: 1,
      hookPoint: "blocks.1.hook_resid_post",
      featureCount: tensors.featureCount,
      embeddingWidth: width,
      decoderRows: tensors.decoderRows.map((value) => rowLength * value),
      native,
      fidelity: null,
      about: { format: "saelens", architecture: "jumprelu", folds: [], folder: "" },
      notes: new Map(),
    };
  }

  async function changeOf(sae: LoadedSae, unit: "raw" | "unit"): Promise<number> {
    const scope = { promptTokens: tokens.length, maxTokens: 1, specialTokens: () => new Int32Array(0) };
    const steering = { features: [{ index: FEATURE, strength: STRENGTH, unit }] };
    const plan = planSteering(steering, [sae], scope, (text) => createHash("sha256").update(text).digest("hex"));
    const capture = (["pre_steering", "post_steering"] as const).map((readPoint) => ({
      layer: 1,
      fromPosition: 1,
      toPosition: 2,
      readPoint,
    }));
    const { captured } = await session.run({ tokens, maxTokens: 1, edits: nativeEdits(plan), capture });
    const [pre, post] = [captured.get("0:1"), captured.get("1:1")];
    return Math.hypot(...(post ?? new Float32Array()).map((value, i) => value - (pre?.[i] ?? Number.NaN)));
  }

  it.each([
    [1, true],
    [3, true],
    [1, false],
    [3, false],
  ])(
    "is strength times row length in 'raw', and the strength in 'unit': rows of %d, bias taken off %s",
    async (length, bias) => {
      const sae = await dictionary(length, bias);
      expect(await changeOf(sae, "raw")).toBeCloseTo(STRENGTH * length, 3);
      expect(await changeOf(sae, "unit")).toBeCloseTo(STRENGTH, 3);
    },
  );
});
