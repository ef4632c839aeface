/** Number formats that an SAE may be stored in. Encoding is always done in f32. */
export const TENSOR_DTYPES = ["F32", "F16", "BF16"] as const;
export type TensorDtype = (typeof TENSOR_DTYPES)[number];

export function isTensorDtype(text: string): text is TensorDtype {
  return TENSOR_DTYPES.some((dtype) => dtype === text);
}

export function bytesPerValue(dtype: TensorDtype): number {
  return dtype === "F32" ? 4 : 2;
}

/** Little-endian numbers of one tensor as f32. `bytes.length` is a whole number of values. */
export function valuesAsF32(bytes: Uint8Array, dtype: TensorDtype): Float32Array {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const values = new Float32Array(bytes.byteLength / bytesPerValue(dtype));
  switch (dtype) {
    case "F32":
      for (let i = 0; i < values.length; i += 1) values[i] = view.getFloat32(i * 4, true);
      break;
    case "F16":
      for (let i = 0; i < values.length; i += 1) values[i] = halfAsNumber(view.getUint16(i * 2, true));
      break;
    case "BF16": {
      // bfloat16 is the upper half of a binary32.
      const bits = new Uint32Array(values.buffer);
      for (let i = 0; i < bits.length; i += 1) bits[i] = view.getUint16(i * 2, true) << 16;
      break;
    }
  }
  return values;
}

/** IEEE 754 binary16: one sign bit, five of exponent (bias 15), ten of fraction. */
function halfAsNumber(bits: number): number {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 0x1f;
  const fraction = bits & 0x3ff;
  if (exponent === 0) return sign * fraction * 2 ** -24;
  if (exponent === 0x1f) return fraction === 0 ? sign * Infinity : NaN;
  return sign * (1 + fraction / 1024) * 2 ** (exponent - 15);
}
