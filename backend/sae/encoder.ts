import type { SaeTensors } from "../native/binding.ts";

/** SAELens adds it to the deviation on the way in and not on the way out. */
const LAYER_NORM_EPSILON = 1e-5;

/** Row statistics that normalisation needs, and its inverse. */
interface RowNormalization {
  readonly shift: number;
  /** (x - shift) * factor is what the encoder sees. */
  readonly factor: number;
  /** What a decoded row is multiplied by before `shift` is added back. */
  readonly outputScale: number;
}

/**
 * Activations of one residual row: the reference that the native encoder is compared with. Sums are in f64, so values
 * differ from the native ones by f32 rounding.
 */
export function encodeRow(tensors: SaeTensors, row: Float32Array): Float32Array {
  const { embeddingWidth: d, featureCount, encoderColumns } = tensors;
  const input = preparedRow(tensors, row);
  const activations = new Float32Array(featureCount);
  for (let feature = 0; feature < featureCount; feature += 1) {
    let product = 0;
    const start = feature * d;
    for (let i = 0; i < d; i += 1) product += (input[i] ?? 0) * (encoderColumns[start + i] ?? 0);
    activations[feature] = activationOf(tensors, product, feature);
  }
  if (tensors.activation === "topk") keepLargest(activations, tensors.activeCount ?? 0);
  return activations;
}

/** The residual row that activations stand for: f·W_dec + b_dec, with the normalisation of `row` undone. */
export function decodeRow(
  tensors: SaeTensors,
  decoderRows: Float32Array,
  activations: Float32Array,
  row: Float32Array,
): Float32Array {
  const { embeddingWidth: d, decoderBias } = tensors;
  const sum = Float64Array.from(decoderBias);
  activations.forEach((value, feature) => {
    if (value === 0) return;
    const start = feature * d;
    for (let i = 0; i < d; i += 1) sum[i] = (sum[i] ?? 0) + value * (decoderRows[start + i] ?? 0);
  });
  const { shift, outputScale } = normalizationOf(tensors, row);
  return Float32Array.from(sum, (value) => value * outputScale + shift);
}

/** What one unit of activation is multiplied by on its way back to this row's residual stream: 1 without normalisation. */
export function outputScaleOf(tensors: SaeTensors, row: Float32Array): number {
  return normalizationOf(tensors, row).outputScale;
}

function preparedRow(tensors: SaeTensors, row: Float32Array): Float32Array {
  const { shift, factor } = normalizationOf(tensors, row);
  const { applyDecoderBiasToInput, decoderBias } = tensors;
  return row.map((value, i) => (value - shift) * factor - (applyDecoderBiasToInput ? (decoderBias[i] ?? 0) : 0));
}

function normalizationOf(tensors: SaeTensors, row: Float32Array): RowNormalization {
  const width = row.length;
  if (tensors.normalization === "constant_norm") {
    const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
    // A row of zeros has no direction to keep.
    const factor = length > 0 ? Math.sqrt(width) / length : 0;
    return { shift: 0, factor, outputScale: length / Math.sqrt(width) };
  }
  if (tensors.normalization === "layer_norm") {
    const mean = row.reduce((sum, value) => sum + value, 0) / width;
    const squares = row.reduce((sum, value) => sum + (value - mean) ** 2, 0);
    const deviation = width > 1 ? Math.sqrt(squares / (width - 1)) : 0;
    return { shift: mean, factor: 1 / (deviation + LAYER_NORM_EPSILON), outputScale: deviation };
  }
  return { shift: 0, factor: 1, outputScale: 1 };
}

function activationOf(tensors: SaeTensors, product: number, feature: number): number {
  const bias = tensors.encoderBias[feature] ?? 0;
  if (tensors.activation === "gated") {
    if (!(product + (tensors.gateBias?.[feature] ?? 0) > 0)) return 0;
    return Math.max(0, product * (tensors.magnitudeScale?.[feature] ?? 1) + bias);
  }
  const value = Math.fround(product + bias);
  const floor = tensors.activation === "jumprelu" ? Math.max(0, tensors.threshold[feature] ?? 0) : 0;
  return value > floor ? value : 0;
}

/** Zeroes all but the `count` largest; ties go to the smaller index. */
function keepLargest(activations: Float32Array, count: number): void {
  const active = [...activations.keys()].filter((index) => (activations[index] ?? 0) > 0);
  const ranked = active.toSorted((a, b) => (activations[b] ?? 0) - (activations[a] ?? 0) || a - b);
  for (const index of ranked.slice(count)) activations[index] = 0;
}
