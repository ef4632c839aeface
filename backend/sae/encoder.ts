import type { SaeTensors } from "../native/binding.ts";

/**
 * Activations of one residual row, in f32 as the native encoder computes them: the reference it is compared with.
 * p = (x - b_dec)·W_enc + b_enc; relu(p), or for JumpReLU p where p > threshold and p > 0.
 */
export function encodeRow(tensors: SaeTensors, row: Float32Array): Float32Array {
  const { embeddingWidth: d, featureCount, encoderColumns, encoderBias, threshold } = tensors;
  const input = Float32Array.from(row);
  if (tensors.applyDecoderBiasToInput) {
    for (let i = 0; i < d; i += 1) input[i] = (input[i] ?? 0) - (tensors.decoderBias[i] ?? 0);
  }
  const activations = new Float32Array(featureCount);
  for (let feature = 0; feature < featureCount; feature += 1) {
    let sum = 0;
    const start = feature * d;
    for (let i = 0; i < d; i += 1) sum += (input[i] ?? 0) * (encoderColumns[start + i] ?? 0);
    const value = Math.fround(sum + (encoderBias[feature] ?? 0));
    const floor = tensors.activation === "jumprelu" ? Math.max(0, threshold[feature] ?? 0) : 0;
    activations[feature] = value > floor ? value : 0;
  }
  return activations;
}
