import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { decodeRow, encodeRow } from "../../../../backend/sae/encoder.ts";
import { npyTensor } from "../../../../backend/sae/npy-array.ts";
import { readSaeFolder } from "../../../../backend/sae/read-sae-folder.ts";
import { SaeFileError } from "../../../../backend/sae/sae-file-error.ts";
import { npyBytes, npzBytes, zipBytes, type FixtureArray } from "../../../support/npz-fixture.ts";
import { filesFolder, safetensorsBytes, TINY_CONFIG, TINY_TENSORS } from "../../../support/safetensors-fixture.ts";

const RELEASE = "gemma-scope-2b-pt-res/layer_12/width_16k/average_l0_82";
const arrays: Readonly<Record<string, FixtureArray>> = {
  W_enc: { shape: [2, 3], values: [1, 0, 2, 0, 1, -1] },
  W_dec: { shape: [3, 2], values: [1, 2, 3, 4, 5, 6] },
  b_enc: { shape: [3], values: [0, 0.5, 0] },
  b_dec: { shape: [2], values: [1, 1] },
  threshold: { shape: [3], values: [0.5, 0.5, 0.5] },
};
const gemma = (content = arrays, place = RELEASE) => filesFolder({ "params.npz": npzBytes(content) }, place);

describe("a Gemma Scope folder", () => {
  it("is JumpReLU without the decoder bias in front, at the layer its folders name", async () => {
    const sae = await readSaeFolder(gemma());
    expect(sae.config).toMatchObject({
      format: "gemma_scope",
      architecture: "jumprelu",
      embeddingWidth: 2,
      featureCount: 3,
      layer: 12,
      hookPoint: "blocks.12.hook_resid_post",
    });
    // p = 3, 1.5, 5: nothing is subtracted.
    expect([...encodeRow(sae.tensors, Float32Array.of(3, 1))]).toEqual([3, 1.5, 5]);
    expect([...sae.decoderRows]).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("may have the older names, and columns stored first", async () => {
    const { W_enc: _, W_dec, ...rest } = arrays;
    const old = {
      ...rest,
      w_enc: { shape: [2, 3], values: [1, 0, 0, 1, 2, -1], fortranOrder: true },
      w_dec: W_dec ?? { shape: [], values: [] },
    };
    const sae = await readSaeFolder(gemma(old));
    expect([...sae.tensors.encoderColumns]).toEqual([1, 0, 0, 1, 2, -1]);
  });

  it("does not say its layer when it lies elsewhere", async () => {
    expect((await readSaeFolder(gemma(arrays, "copied"))).config).toMatchObject({ layer: null, hookPoint: null });
  });

  it.each([
    ["objects", { b_dec: { shape: [2], values: [1, 1], descriptor: "|O" } }, "pickle"],
    ["doubles", { b_dec: { shape: [2], values: [1, 1], descriptor: "<f8" } }, "stored as <f8"],
    ["too few bytes", { b_dec: { shape: [3], values: [1, 1] } }, "needs 12 bytes but has 8"],
    ["another width in the encoder", { W_enc: { shape: [3, 3], values: Array<number>(9).fill(1) } }, "[3, 3]"],
    ["a tensor of other maths", { W_skip: { shape: [2, 2], values: [1, 2, 3, 4] } }, "W_skip"],
  ])("is refused when its arrays hold %s", async (_, change, named) => {
    await expect(readSaeFolder(gemma({ ...arrays, ...change }))).rejects.toThrow(named);
  });

  it("is refused for other hook points by the release's name", async () => {
    await expect(readSaeFolder(gemma(arrays, RELEASE.replace("-res", "-mlp")))).rejects.toThrow("hook point 'mlp'");
  });

  it("is refused when it is cut off or no zip file of arrays", async () => {
    const whole = npzBytes(arrays);
    for (const [content, named] of [
      [whole.subarray(0, whole.length - 30), "zip file"],
      [zipBytes({ "a.npy": Buffer.from("nothing like it") }), "not in NumPy's format"],
      [zipBytes({ "archive/data.pkl": Buffer.from("x"), "archive/data/0": Buffer.alloc(8) }), "Python pickle"],
      [zipBytes({ "readme.txt": npyBytes({ shape: [1], values: [1] }) }), "readme.txt"],
    ] as const) {
      const failure = readSaeFolder(filesFolder({ "params.npz": content }));
      await expect(failure).rejects.toThrow(SaeFileError);
      await expect(failure).rejects.toThrow(named);
    }
  });
});

/** Null for bytes that are refused as they should be; any other failure passes through. */
function arrayOrRefusal(bytes: Buffer) {
  try {
    return npyTensor("x", bytes, "f");
  } catch (thrown) {
    if (thrown instanceof SaeFileError) return null;
    throw thrown;
  }
}

describe("an array in NumPy's format", () => {
  it("is read whole or refused by our own error, whatever its bytes say", () => {
    const whole = npyBytes({ shape: [2, 3], values: [1, 2, 3, 4, 5, 6] });
    const change = fc.record({ at: fc.nat(whole.length - 1), byte: fc.nat(255) });
    fc.assert(
      fc.property(fc.array(change, { maxLength: 4 }), fc.nat(whole.length), (changes, length) => {
        const bytes = Buffer.from(whole.subarray(0, length));
        for (const { at, byte } of changes) if (at < length) bytes[at] = byte;
        const tensor = arrayOrRefusal(bytes);
        expect(tensor?.bytes.length).toBe(tensor?.lengthBytes);
      }),
    );
    expect(arrayOrRefusal(whole)?.shape).toEqual([2, 3]);
  });
});

describe("a Llama Scope folder", () => {
  const tensors = {
    "encoder.weight": { shape: [3, 2], values: [1, 0, 0, 1, 2, -1] },
    "encoder.bias": { shape: [3], values: [0, 0.5, 0] },
    "decoder.weight": { shape: [2, 3], values: [1, 3, 5, 2, 4, 6] },
    "decoder.bias": { shape: [2], values: [1, 1] },
  };
  const config = {
    d_model: 2,
    d_sae: 3,
    jump_relu_threshold: 0.5,
    hook_point_in: "blocks.3.hook_resid_post",
    hook_point_out: "blocks.3.hook_resid_post",
    norm_activation: "dataset-wise",
    dataset_average_activation_norm: { in: Math.SQRT2 / 4, out: Math.SQRT2 / 4 },
  };
  const folder = (change: object = {}) =>
    filesFolder({
      "hyperparams.json": JSON.stringify({ ...config, ...change }),
      "checkpoints/final.safetensors": safetensorsBytes(tensors),
    });

  it("is turned, and its norm factor √d / average is folded in: s is 4 here", async () => {
    const sae = await readSaeFolder(folder());
    expect(sae.config).toMatchObject({ format: "llama_scope", architecture: "jumprelu", layer: 3, featureCount: 3 });
    // 4·(1, 0.5) = (4, 2): p = 4, 2.5, 6; the threshold is 0.5·4 = 2.
    const row = Float32Array.of(1, 0.5);
    const activations = encodeRow(sae.tensors, row);
    expect([...activations]).toEqual([4, 2.5, 6]);
    // p = 1.6, 1.7, 2.4: only the last is above 2.
    expect([...encodeRow(sae.tensors, Float32Array.of(0.4, 0.2))].map((value) => value > 0)).toEqual([
      false,
      false,
      true,
    ]);
    // (4·(1, 2) + 2.5·(3, 4) + 6·(5, 6) + (1, 1)) / 4.
    expect([...decodeRow(sae.tensors, sae.decoderRows, activations, row)]).toEqual([10.625, 13.75]);
  });

  it.each([
    ["another activation", { act_fn: "relu" }, "act_fn 'relu'"],
    ["another hook point", { hook_point_in: "blocks.3.hook_mlp_out" }, "hook_mlp_out"],
    ["two hook points", { hook_point_out: "blocks.4.hook_resid_post" }, "transcoder"],
    ["no norm", { dataset_average_activation_norm: null }, "no dataset_average_activation_norm"],
    ["another norm", { norm_activation: "token-wise" }, "token-wise"],
    ["another width", { d_model: 5 }, "d_in 5"],
  ])("is refused by name when it has %s", async (_, change, named) => {
    await expect(readSaeFolder(folder(change))).rejects.toThrow(named);
  });
});

describe("a sparsify folder", () => {
  const tensors = {
    "encoder.weight": { shape: [3, 2], values: [1, 0, 0, 1, 2, -1] },
    "encoder.bias": { shape: [3], values: [0, 0.5, 0] },
    W_dec: { shape: [3, 2], values: [1, 2, 3, 4, 5, 6] },
    b_dec: { shape: [2], values: [1, 1] },
  };
  const config = { activation: "topk", d_in: 2, k: 2, num_latents: 3, expansion_factor: 32, transcode: false };
  const folder = (change: object = {}, place = "layers.5") =>
    filesFolder(
      { "cfg.json": JSON.stringify({ ...config, ...change }), "sae.safetensors": safetensorsBytes(tensors) },
      place,
    );

  it("is topk with the decoder bias subtracted, at the layer its folder names", async () => {
    const sae = await readSaeFolder(folder());
    expect(sae.config).toMatchObject({ format: "sparsify", architecture: "topk", layer: 5, featureCount: 3 });
    // x - b_dec = (2, 1): p = 2, 1.5, 3.
    expect([...encodeRow(sae.tensors, Float32Array.of(3, 2))]).toEqual([2, 0, 3]);
    expect([...sae.decoderRows]).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("does not say its layer under another name", async () => {
    expect((await readSaeFolder(folder({}, "mine"))).config.layer).toBeNull();
  });

  it.each([
    ["groupmax", { activation: "groupmax" }, "layers.5", "groupmax"],
    ["a skip connection", { skip_connection: true }, "layers.5", "transcoder"],
    ["more than all features", { k: 4 }, "layers.5", "k 4"],
    ["another hook point", {}, "layers.5.mlp", "layers.5.mlp"],
    ["no size", { num_latents: 0, expansion_factor: null }, "layers.5", "num_latents"],
  ])("is refused by name for %s", async (_, change, place, named) => {
    await expect(readSaeFolder(folder(change, place))).rejects.toThrow(named);
  });
});

describe("a folder", () => {
  it("is told by its tensors, whatever the files are called, and whatever lies beside them", async () => {
    const sae = await readSaeFolder(
      filesFolder({
        "mine.json": JSON.stringify(TINY_CONFIG),
        "weights.bin": safetensorsBytes(TINY_TENSORS),
        "sparsity.safetensors": safetensorsBytes({ sparsity: { shape: [3], values: [0, 0, 0] } }),
        "features.json": "[]",
        "training.pt": Buffer.from([0x80, 0x02, 0x7d]),
      }),
    );
    expect(sae.config.format).toBe("saelens");
  });

  it.each([
    ["a pickle only", { "ae.pt": Buffer.from([0x80, 0x02, 0x7d, 0x71]), "config.json": "{}" }, "never loaded"],
    ["nothing", { "notes.txt": "hello" }, "found notes.txt"],
    ["other tensors", { "a.safetensors": safetensorsBytes({ lm_head: { shape: [1], values: [1] } }) }, "lm_head"],
    [
      "two SAEs",
      { "a.safetensors": safetensorsBytes(TINY_TENSORS), "b.safetensors": safetensorsBytes(TINY_TENSORS) },
      "a.safetensors, b.safetensors",
    ],
    ["no configuration", { "a.safetensors": safetensorsBytes(TINY_TENSORS) }, "cfg.json: cannot be read"],
  ])("with %s is refused with what was found", async (_, files, named) => {
    const failure = readSaeFolder(filesFolder(files));
    await expect(failure).rejects.toThrow(SaeFileError);
    await expect(failure).rejects.toThrow(named);
  });

  it("that does not exist is refused", async () => {
    await expect(readSaeFolder("/nowhere/at/all")).rejects.toThrow("does not exist");
  });
});
