import { readFileSync } from "node:fs";
import { z } from "zod";
import type { SaeTensors } from "../../backend/native/binding.ts";
import { repositoryFile } from "./native-harness.ts";

const entrySchema = z.object({
  dtype: z.literal("F32"),
  shape: z.array(z.number()),
  data_offsets: z.tuple([z.number(), z.number()]),
});
const headerSchema = z.record(z.string(), z.unknown());

/** The tensors of a demo SAE straight from its safetensors file: a second reader, so that tests need no other room. */
export function demoSae(name: "demo-l1" | "demo-l2"): SaeTensors & { decoderRows: Float32Array } {
  const file = readFileSync(repositoryFile(`backend/demo/${name}/sae_weights.safetensors`));
  const headerLength = Number(file.readBigUInt64LE(0));
  const header = headerSchema.parse(JSON.parse(file.subarray(8, 8 + headerLength).toString("utf8")));
  const read = (tensor: string): Float32Array => {
    const [start, end] = entrySchema.parse(header[tensor]).data_offsets;
    const bytes = new Uint8Array(file.subarray(8 + headerLength + start, 8 + headerLength + end));
    return new Float32Array(bytes.buffer);
  };
  const encoder = read("W_enc");
  const encoderBias = read("b_enc");
  const decoderBias = read("b_dec");
  const width = decoderBias.length;
  const features = encoderBias.length;
  const encoderColumns = new Float32Array(width * features);
  for (let row = 0; row < width; row++) {
    for (let column = 0; column < features; column++) {
      encoderColumns[column * width + row] = encoder[row * features + column] ?? 0;
    }
  }
  return {
    embeddingWidth: width,
    featureCount: features,
    encoderColumns,
    encoderBias,
    decoderBias,
    applyDecoderBiasToInput: true,
    activation: "jumprelu",
    threshold: read("threshold"),
    decoderRows: read("W_dec"),
  };
}
