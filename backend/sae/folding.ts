/** The matrices and the bias that scale factors are folded into; changed in place. */
export interface Foldable {
  /** F rows of d values each. */
  readonly encoderColumns: Float32Array;
  readonly encoderBias: Float32Array;
  readonly decoderRows: Float32Array;
  readonly decoderBias: Float32Array;
}

/**
 * An SAE that was trained on x·s and whose reconstruction is divided by s again: W_enc·s, W_dec/s, b_dec/s. The decoder
 * bias too, or reconstructions shift; activations stay what they were on the scaled input.
 */
export function foldInputScale(parts: Foldable, scale: number): void {
  multiply(parts.encoderColumns, scale);
  multiply(parts.decoderRows, 1 / scale);
  multiply(parts.decoderBias, 1 / scale);
}

/**
 * An SAE that chooses by p·‖W_dec row‖ and divides by the norm again when it decodes: activations are in units of the
 * norm and decoder rows have length 1. A row of zeros stays one.
 */
export function foldDecoderNorms({ encoderColumns, encoderBias, decoderRows }: Foldable): void {
  decoderNorms(decoderRows, encoderBias.length).forEach((norm, feature) => {
    multiply(rowOf(encoderColumns, feature, encoderBias.length), norm);
    encoderBias[feature] = (encoderBias[feature] ?? 0) * norm;
    if (norm > 0) multiply(rowOf(decoderRows, feature, encoderBias.length), 1 / norm);
  });
}

/** A factor per feature between activation and decoder row. */
export function foldFeatureScales(decoderRows: Float32Array, scales: Float32Array): void {
  scales.forEach((scale, feature) => multiply(rowOf(decoderRows, feature, scales.length), scale));
}

/** Length of each decoder row. */
export function decoderNorms(decoderRows: Float32Array, featureCount: number): Float64Array {
  return Float64Array.from({ length: featureCount }, (_, feature) =>
    Math.sqrt(rowOf(decoderRows, feature, featureCount).reduce((sum, value) => sum + value * value, 0)),
  );
}

function rowOf(matrix: Float32Array, feature: number, featureCount: number): Float32Array {
  const width = matrix.length / featureCount;
  return matrix.subarray(feature * width, (feature + 1) * width);
}

function multiply(values: Float32Array, factor: number): void {
  for (let i = 0; i < values.length; i += 1) values[i] = (values[i] ?? 0) * factor;
}
