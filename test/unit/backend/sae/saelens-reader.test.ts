import * as fc from "fast-check";
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { encodeRow } from "../../../../backend/sae/encoder.ts";
import { SaeFileError } from "../../../../backend/sae/sae-file-error.ts";
import { readSaeFolder } from "../../../../backend/sae/read-sae-folder.ts";
import { readSafetensorsHeader } from "../../../../backend/sae/safetensors-header.ts";
import { saeFolder, safetensorsBytes, TINY_CONFIG, TINY_TENSORS } from "../../../support/safetensors-fixture.ts";

const read = (config: unknown, weights: Uint8Array) => readSaeFolder(saeFolder(config, weights));
const tiny = (change: Parameters<typeof safetensorsBytes>[1] = () => undefined) =>
  safetensorsBytes(TINY_TENSORS, change);

describe("an SAE in SAELens layout", () => {
  it("is read with encoder columns and decoder rows one feature a row", async () => {
    const sae = await read(TINY_CONFIG, tiny());
    expect([...sae.tensors.encoderColumns]).toEqual([1, 0, 0, 1, 2, -1]);
    expect([...sae.decoderRows]).toEqual([1, 2, 3, 4, 5, 6]);
    expect(sae.config).toMatchObject({ architecture: "jumprelu", layer: 1, embeddingWidth: 2, featureCount: 3 });
  });

  it("is turned by its shape, whatever the tensor is called", async () => {
    const turned = {
      ...TINY_TENSORS,
      W_enc: { shape: [3, 2], values: [1, 0, 0, 1, 2, -1] },
      W_dec: { shape: [2, 3], values: [1, 3, 5, 2, 4, 6] },
    };
    const sae = await read(TINY_CONFIG, safetensorsBytes(turned));
    expect([...sae.tensors.encoderColumns]).toEqual([1, 0, 0, 1, 2, -1]);
    expect([...sae.decoderRows]).toEqual([1, 2, 3, 4, 5, 6]);
  });

  it("encodes a row by hand-made numbers: strictly above the threshold, decoder bias subtracted", async () => {
    const { tensors } = await read(TINY_CONFIG, tiny());
    // x - b_dec = (2, 0): p = (2, 0.5, 4); 0.5 does not exceed its threshold.
    expect([...encodeRow(tensors, Float32Array.of(3, 1))]).toEqual([2, 0, 4]);
  });

  it("keeps positive values only when it is a standard one", async () => {
    const { threshold: _, ...standard } = TINY_TENSORS;
    const config = { ...TINY_CONFIG, architecture: "standard", apply_b_dec_to_input: false };
    const { tensors } = await read(config, safetensorsBytes(standard));
    expect([...encodeRow(tensors, Float32Array.of(0, 1))]).toEqual([0, 1.5, 0]);
  });

  it("reads the nested configuration of version 6 and the first name of the hook point", async () => {
    const { hook_name: hookName, ...rest } = TINY_CONFIG;
    const nested = { ...rest, metadata: { hook_name: hookName, model_name: "m", sae_lens_version: "6.1.0" } };
    expect((await read(nested, tiny())).config).toMatchObject({ layer: 1, modelName: "m" });
    const oldest = { ...rest, hook_point: "blocks.3.hook_resid_pre", normalize_activations: false };
    expect((await read(oldest, tiny())).config.layer).toBe(2);
  });

  it("reads f16 and bf16 tensors", async () => {
    const half = { ...TINY_TENSORS, b_enc: { dtype: "F16", shape: [3], values: [0x3c00, 0xc000, 0x0001] } };
    expect([...(await read(TINY_CONFIG, safetensorsBytes(half))).tensors.encoderBias]).toEqual([1, -2, 2 ** -24]);
    const brain = { ...TINY_TENSORS, b_enc: { dtype: "BF16", shape: [3], values: [0x3f80, 0xc000, 0x3e80] } };
    expect([...(await read(TINY_CONFIG, safetensorsBytes(brain))).tensors.encoderBias]).toEqual([1, -2, 0.25]);
  });

  it("has a digest that follows its tensors and neither their order nor the metadata", async () => {
    const { digest } = await read(TINY_CONFIG, tiny());
    const reversed = safetensorsBytes(Object.fromEntries(Object.entries(TINY_TENSORS).toReversed()), (header) => {
      header["__metadata__"] = { made: "elsewhere" };
    });
    expect((await read(TINY_CONFIG, reversed)).digest).toBe(digest);
    const other = { ...TINY_TENSORS, b_dec: { shape: [2], values: [1, 1.5] } };
    expect((await read(TINY_CONFIG, safetensorsBytes(other))).digest).not.toBe(digest);
  });

  it.each([
    ["an architecture of other maths", { architecture: "transcoder" }, "architecture 'transcoder'"],
    ["an architecture that exists in training only", { architecture: "batchtopk" }, "architecture 'batchtopk'"],
    ["an unknown normalisation", { normalize_activations: "constant_scalar_rescale" }, "constant_scalar_rescale"],
    ["topk without k", { architecture: "topk" }, "k not given"],
    ["topk with more than all", { architecture: "topk", k: 4 }, "k 4"],
    ["the rescaling of another architecture", { rescale_acts_by_decoder_norm: true }, "rescale_acts_by_decoder_norm"],
    ["a reshape", { reshape_activations: "hook_z" }, "reshape_activations 'hook_z'"],
    ["a hook point off the residual stream", { hook_name: "blocks.1.hook_mlp_out" }, "blocks.1.hook_mlp_out"],
    ["a residual point before the first block", { hook_name: "blocks.0.hook_resid_pre" }, "blocks.0.hook_resid_pre"],
    ["another activation function", { architecture: "standard", activation_fn_str: "tanh-relu" }, "tanh-relu"],
    ["no width", { d_in: undefined }, "d_in"],
    ["another width than its tensors", { d_in: 5 }, "d_in 5"],
  ])("is refused by name when its configuration has %s", async (_, change, named) => {
    const failure = read({ ...TINY_CONFIG, ...change }, tiny());
    await expect(failure).rejects.toThrow(SaeFileError);
    await expect(failure).rejects.toThrow(named);
  });

  it.each([
    ["a missing tensor", { W_dec: undefined }, "no tensor W_dec; found W_enc"],
    ["a tensor of other maths", { W_skip: { shape: [2, 2], values: [1, 2, 3, 4] } }, "W_skip"],
    ["a value that is not finite", { b_dec: { shape: [2], values: [NaN, 0] } }, "not finite"],
    ["a bias of the wrong length", { b_enc: { shape: [2], values: [0, 0] } }, "b_enc has shape [2], expected [3]"],
    ["a threshold that was never set", { threshold: { shape: [3], values: [-1, -1, -1] } }, "never set"],
    ["tensors of a gated one too", { b_gate: { shape: [3], values: [0, 0, 0] } }, "b_gate"],
  ])("is refused with what was found when its weights have %s", async (_, change, named) => {
    const entries = Object.entries({ ...TINY_TENSORS, ...change }).flatMap(([name, tensor]) =>
      tensor === undefined ? [] : [[name, tensor] as const],
    );
    await expect(read(TINY_CONFIG, safetensorsBytes(Object.fromEntries(entries)))).rejects.toThrow(named);
  });

  it("may have a scaling factor that was never trained", async () => {
    const plain = { ...TINY_TENSORS, scaling_factor: { shape: [3], values: [1, 1, 1] } };
    await expect(read(TINY_CONFIG, safetensorsBytes(plain))).resolves.toBeDefined();
  });

  it("is refused when both sides of a matrix are equal, since its orientation cannot be told", async () => {
    const square = {
      W_enc: { shape: [2, 2], values: [1, 2, 3, 4] },
      W_dec: { shape: [2, 2], values: [1, 2, 3, 4] },
      b_enc: { shape: [2], values: [0, 0] },
      b_dec: { shape: [2], values: [0, 0] },
      threshold: { shape: [2], values: [0, 0] },
    };
    await expect(read({ ...TINY_CONFIG, d_sae: 2 }, safetensorsBytes(square))).rejects.toThrow("square");
  });
});

const entry = (offsets: number[], dtype = "F32", shape = [3]) => ({ dtype, shape, data_offsets: offsets });

/** No places for a header that is refused as it should be; any other failure passes through. */
function placesOrRefusal(header: Uint8Array, fileBytes: number) {
  try {
    return readSafetensorsHeader(header, fileBytes, "f");
  } catch (thrown) {
    if (thrown instanceof SaeFileError) return [];
    throw thrown;
  }
}

describe("a safetensors file", () => {
  it.each([
    ["ranges that overlap", (h: Record<string, unknown>) => (h["b_enc"] = entry([4, 16])), "overlap"],
    ["a range past its end", (h: Record<string, unknown>) => (h["b_enc"] = entry([9_000, 9_012])), "cut off"],
    [
      "a length that is not its shape's",
      (h: Record<string, unknown>) => (h["b_enc"] = entry([0, 8])),
      "needs 12 bytes",
    ],
    ["an unknown number format", (h: Record<string, unknown>) => (h["b_enc"] = entry([0, 12], "I8")), "stored as I8"],
    ["a negative offset", (h: Record<string, unknown>) => (h["b_enc"] = entry([-4, 8])), "malformed"],
  ])("is refused when it has %s", async (_, change, named) => {
    await expect(
      read(
        TINY_CONFIG,
        tiny((header) => void change(header)),
      ),
    ).rejects.toThrow(named);
  });

  it("is refused when it is empty, shorter than its header or states a huge header", async () => {
    await expect(read(TINY_CONFIG, Buffer.alloc(3))).rejects.toThrow("too short");
    await expect(read(TINY_CONFIG, tiny().subarray(0, 40))).rejects.toThrow("cut off");
    const huge = Buffer.alloc(64);
    huge.writeBigUInt64LE(2n ** 60n);
    await expect(read(TINY_CONFIG, huge)).rejects.toThrow("states a header of");
    await expect(read(TINY_CONFIG, tiny().subarray(0, tiny().length - 4))).rejects.toThrow("cut off");
  });

  it("may have bytes that belong to no tensor", async () => {
    const folder = saeFolder(TINY_CONFIG, tiny());
    appendFileSync(join(folder, "sae_weights.safetensors"), "more");
    await expect(readSaeFolder(folder)).resolves.toBeDefined();
  });

  it("never fails in another way than by its own error, whatever its header says", () => {
    const anyHeader = fc.oneof(
      fc.uint8Array({ maxLength: 200 }),
      fc.json().map((text) => new TextEncoder().encode(text)),
      fc
        .dictionary(
          fc.string({ maxLength: 6 }),
          fc.record(
            {
              dtype: fc.constantFrom("F32", "F16", "I8"),
              shape: fc.array(fc.maxSafeNat(), { maxLength: 3 }),
              data_offsets: fc.array(fc.maxSafeInteger(), { minLength: 1, maxLength: 3 }),
            },
            { requiredKeys: [] },
          ),
        )
        .map((header) => new TextEncoder().encode(JSON.stringify(header))),
    );
    fc.assert(
      fc.property(anyHeader, fc.nat(1_000), (header, more) => {
        const fileBytes = 8 + header.length + more;
        const places = placesOrRefusal(header, fileBytes);
        for (const { offsetBytes, lengthBytes } of places) {
          expect(offsetBytes).toBeGreaterThanOrEqual(8 + header.length);
          expect(offsetBytes + lengthBytes).toBeLessThanOrEqual(fileBytes);
        }
      }),
    );
  });
});
