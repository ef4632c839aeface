import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { z } from "zod";
import { inspectSae, type InspectionWish } from "../../backend/inspect/inspection.ts";
import { ResidualReader } from "../../backend/inspect/residual-reader.ts";
import { textWindows } from "../../backend/inspect/text-windows.ts";
import { DEMO_F32, DEMO_Q8, nativeAddon, openModel, repositoryFile } from "../support/native-harness.ts";
import { saeFolder, safetensorsBytes, TINY_CONFIG, TINY_TENSORS } from "../support/safetensors-fixture.ts";

const goldenSchema = z.object({
  cases: z.array(
    z.object({
      text: z.string(),
      token_ids: z.array(z.number()),
      features: z.array(z.array(z.tuple([z.number(), z.number()]))),
    }),
  ),
});
const golden = goldenSchema.parse(
  JSON.parse(readFileSync(repositoryFile("test/native/fixtures/golden-l1.json"), "utf8")),
);
const STORY =
  "Once upon a time there was an old sailor who lived by the sea. Every morning he walked down to the harbour, " +
  "looked at the waves and told the gulls about the storms of his youth. One day a small boat came in from the fog.";

const inspect = async (wish: Partial<InspectionWish>) =>
  inspectSae(
    {
      modelPath: DEMO_F32,
      saePath: repositoryFile("backend/demo/demo-l1"),
      layer: null,
      text: null,
      whole: true,
      withActivations: false,
      reference: null,
      minExplainedVariance: 0.5,
      threadsFor: () => 1,
      ...wish,
    },
    await nativeAddon(),
  );

describe("an inspection of the demo SAE", () => {
  it("shows every active feature at every position, as PyTorch has them", async () => {
    for (const { text, token_ids: tokens, features } of golden.cases) {
      const { activations } = await inspect({ text, withActivations: true });
      const positions = activations?.positions ?? [];
      expect(positions.map(({ token_id: token }) => token)).toEqual(tokens);
      expect(positions.map(({ position }) => position)).toEqual([...tokens.keys()]);
      features.forEach((expected, position) => {
        const seen = positions[position]?.features ?? [];
        expect(seen.map(({ index }) => index)).toEqual(expected.map(([index]) => index));
        expected.forEach(([, value], place) => expect(seen[place]?.value).toBeCloseTo(value, 1));
      });
    }
  });

  it.each([DEMO_F32, DEMO_Q8])("says that it explains the model it was made for (%s)", async (modelPath) => {
    const found = await inspect({ modelPath, text: STORY });
    expect(found).toMatchObject({
      format: "saelens",
      architecture: "jumprelu",
      d_in: 128,
      d_sae: 512,
      hook_point: "blocks.1.hook_resid_post",
      layer: 1,
      fits: true,
    });
    expect(found.explained_variance).toBeGreaterThan(0.85);
    expect(found.l0).toBeGreaterThan(4);
    expect(found.l0).toBeLessThan(16);
    expect(found.dead).toBeGreaterThan(0);
    expect(found).not.toHaveProperty("activations");
  });

  it("says that it explains other layers worse, the last one with its gathered rows not at all", async () => {
    const variances: number[] = [];
    for (const layer of [0, 1, 2, 3]) {
      const found = await inspect({ text: STORY, layer });
      expect(found).toMatchObject({ layer, hook_point: `blocks.${layer}.hook_resid_post`, fits: layer < 3 });
      variances.push(found.explained_variance ?? Number.NaN);
    }
    expect(Math.max(...variances)).toBe(variances[1]);
    expect(variances[3]).toBeLessThan(0);
  });

  it("says which features the quantised file still has, against the unquantised one", async () => {
    const reference = (await inspect({ text: STORY, withActivations: true })).activations?.positions ?? [];
    const quantised = await inspect({ modelPath: DEMO_Q8, text: STORY, reference });
    expect(quantised.survival?.compared).toBeGreaterThan(50);
    expect(quantised.survival?.share).toBeGreaterThan(0.9);
    expect(quantised).not.toHaveProperty("activations");
    const elsewhere = await inspect({ modelPath: DEMO_Q8, text: STORY, reference, layer: 3 });
    expect(elsewhere.survival?.share).toBeLessThan(0.5);
    await expect(inspect({ text: "Another text", reference })).rejects.toThrow("another text");
  });

  it("measures nothing without a text", async () => {
    expect(await inspect({})).toMatchObject({ explained_variance: null, l0: null, dead: null, fits: null });
  });

  it("refuses what does not belong on the model", async () => {
    await expect(inspect({ layer: 4 })).rejects.toThrow("layers 0 to 3");
    const narrow = saeFolder(TINY_CONFIG, safetensorsBytes(TINY_TENSORS));
    await expect(inspect({ saePath: narrow })).rejects.toThrow("has width 2, but the model's residual stream has 128");
    await expect(inspect({ text: "word ".repeat(3_000) })).rejects.toThrow("the model's window is 1024");
  });
});

describe("residual rows", () => {
  it("of the last layer are those of a run in which every position is the last", async () => {
    const model = await openModel(DEMO_F32);
    const reader = await ResidualReader.open(model, {
      contextTokens: 64,
      threads: 1,
      flashAttention: true,
      kvType: "f32",
    });
    const tokens = model.tokenize("The wind sang to the snow", true, true);
    const rows = await reader.rows(tokens, 3);
    expect(rows).toHaveLength(tokens.length);
    const again = await reader.rows(tokens.subarray(0, 3), 3);
    again.forEach((row, place) => expect([...row]).toEqual([...(rows[place] ?? [])]));
    // Reading another layer in between leaves nothing behind.
    expect(await reader.rows(tokens, 1)).toHaveLength(tokens.length);
    expect([...((await reader.rows(tokens, 3)).at(-1) ?? [])]).toEqual([...(rows.at(-1) ?? [])]);
    await reader.dispose();
    await model.dispose();
  });
});

describe("the windows of a text", () => {
  const info = { trainingContextLength: 100, addsBos: true, bosToken: 7 };
  const tokenize = (text: string) => Int32Array.from(text, (_, place) => place);

  it("are as long as the SAE was trained on, each beginning as the model wants", async () => {
    const model = await openModel(DEMO_F32);
    const wanted = { info: { ...model.info, ...info }, tokenize };
    expect(textWindows(wanted, "x".repeat(10), 5).map((window) => [...window])).toEqual([
      [7, 0, 1, 2, 3],
      [7, 4, 5, 6, 7],
      [7, 8, 9],
    ]);
    expect(textWindows(wanted, "x".repeat(120), null).map(({ length }) => length)).toEqual([99, 23]);
    expect(textWindows(wanted, "", 5)).toEqual([]);
    await model.dispose();
  });
});
