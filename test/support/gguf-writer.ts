type Value =
  | { readonly type: "uint32" | "float32"; readonly value: number }
  | { readonly type: "bool"; readonly value: boolean }
  | { readonly type: "string"; readonly value: string }
  | { readonly type: "strings"; readonly value: readonly string[] }
  | { readonly type: "floats" | "int32s"; readonly value: readonly number[] };

interface Tensor {
  readonly name: string;
  /** Fastest-changing dimension first, as GGUF has it. */
  readonly shape: readonly number[];
  readonly type: number;
  readonly bytes: Uint8Array;
}

// Value types of the GGUF format, version 3.
const TYPE = { uint32: 4, int32: 5, float32: 6, bool: 7, string: 8, array: 9 } as const;
const VERSION = 3;
const ALIGNMENT = 32;
const F32 = 0;
const Q8_0 = 8;
/** A block of q8_0: a scale as f16, then the values as signed bytes. */
const Q8_0_VALUES = 32;
const Q8_0_BYTES = 2 + Q8_0_VALUES;

/** Writes GGUF files for tests and benches: enough of version 3 for f32 and q8_0 models with a tokenizer. */
export class GgufWriter {
  readonly #values: { key: string; value: Value }[] = [];
  readonly #tensors: Tensor[] = [];

  uint32(key: string, value: number): this {
    return this.#add(key, { type: "uint32", value });
  }
  float32(key: string, value: number): this {
    return this.#add(key, { type: "float32", value });
  }
  bool(key: string, value: boolean): this {
    return this.#add(key, { type: "bool", value });
  }
  text(key: string, value: string): this {
    return this.#add(key, { type: "string", value });
  }
  texts(key: string, value: readonly string[]): this {
    return this.#add(key, { type: "strings", value });
  }
  floats(key: string, value: readonly number[]): this {
    return this.#add(key, { type: "floats", value });
  }
  int32s(key: string, value: readonly number[]): this {
    return this.#add(key, { type: "int32s", value });
  }
  tensor(name: string, shape: readonly number[], data: Float32Array): this {
    const size = shape.reduce((product, length) => product * length, 1);
    if (size !== data.length) throw new Error(`${name}: ${data.length} values for a shape of ${size}`);
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    this.#tensors.push({ name, shape, type: F32, bytes });
    return this;
  }
  /** The same values as q8_0; rows are whole blocks of 32. */
  tensorQ8(name: string, shape: readonly number[], data: Float32Array): this {
    if ((shape[0] ?? 0) % Q8_0_VALUES !== 0) throw new Error(`${name}: rows of ${shape[0]} values are no q8_0 blocks`);
    this.#tensors.push({ name, shape, type: Q8_0, bytes: q8Blocks(data) });
    return this;
  }

  toBytes(): Buffer {
    const parts: Buffer[] = [
      Buffer.from("GGUF"),
      uint32Bytes(VERSION),
      uint64Bytes(this.#tensors.length),
      uint64Bytes(this.#values.length),
    ];
    for (const { key, value } of this.#values) parts.push(stringBytes(key), valueBytes(value));
    let offset = 0;
    for (const { name, shape, type, bytes } of this.#tensors) {
      parts.push(stringBytes(name), uint32Bytes(shape.length), ...shape.map(uint64Bytes), uint32Bytes(type));
      parts.push(uint64Bytes(offset));
      offset = padded(offset + bytes.byteLength);
    }
    const header = Buffer.concat(parts);
    const data = Buffer.alloc(offset);
    let at = 0;
    for (const { bytes } of this.#tensors) {
      data.set(bytes, at);
      at = padded(at + bytes.byteLength);
    }
    return Buffer.concat([header, Buffer.alloc(padded(header.length) - header.length), data]);
  }

  #add(key: string, value: Value): this {
    this.#values.push({ key, value });
    return this;
  }
}

/** As llama.cpp quantises: the largest value of a block becomes 127. */
function q8Blocks(values: Float32Array): Uint8Array {
  const bytes = Buffer.alloc((values.length / Q8_0_VALUES) * Q8_0_BYTES);
  for (let from = 0, at = 0; from < values.length; from += Q8_0_VALUES, at += Q8_0_BYTES) {
    let largest = 0;
    for (let i = 0; i < Q8_0_VALUES; i++) largest = Math.max(largest, Math.abs(values[from + i] ?? 0));
    const scale = largest / 127;
    bytes.writeUInt16LE(halfBits(scale), at);
    if (scale === 0) continue;
    for (let i = 0; i < Q8_0_VALUES; i++) bytes.writeInt8(Math.round((values[from + i] ?? 0) / scale), at + 2 + i);
  }
  return bytes;
}

const WORD = new DataView(new ArrayBuffer(4));

/** IEEE half precision of a positive number in its normal range, else 0. */
function halfBits(value: number): number {
  WORD.setFloat32(0, value);
  const bits = WORD.getUint32(0);
  const exponent = ((bits >>> 23) & 0xff) - 127 + 15;
  if (exponent < 1 || exponent > 30) return 0;
  // Rounding may carry into the exponent, which is what it should do.
  return ((exponent << 10) | ((bits >>> 13) & 0x3ff)) + ((bits >>> 12) & 1);
}

function padded(length: number): number {
  return Math.ceil(length / ALIGNMENT) * ALIGNMENT;
}

function uint32Bytes(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeUInt32LE(value);
  return bytes;
}

function int32Bytes(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeInt32LE(value);
  return bytes;
}

function float32Bytes(value: number): Buffer {
  const bytes = Buffer.alloc(4);
  bytes.writeFloatLE(value);
  return bytes;
}

function uint64Bytes(value: number): Buffer {
  const bytes = Buffer.alloc(8);
  bytes.writeBigUInt64LE(BigInt(value));
  return bytes;
}

function stringBytes(value: string): Buffer {
  const text = Buffer.from(value, "utf8");
  return Buffer.concat([uint64Bytes(text.length), text]);
}

function arrayBytes(type: number, items: readonly Buffer[]): Buffer {
  return Buffer.concat([uint32Bytes(TYPE.array), uint32Bytes(type), uint64Bytes(items.length), ...items]);
}

function valueBytes(value: Value): Buffer {
  switch (value.type) {
    case "uint32":
      return Buffer.concat([uint32Bytes(TYPE.uint32), uint32Bytes(value.value)]);
    case "float32":
      return Buffer.concat([uint32Bytes(TYPE.float32), float32Bytes(value.value)]);
    case "bool":
      return Buffer.concat([uint32Bytes(TYPE.bool), Buffer.from([value.value ? 1 : 0])]);
    case "string":
      return Buffer.concat([uint32Bytes(TYPE.string), stringBytes(value.value)]);
    case "strings":
      return arrayBytes(TYPE.string, value.value.map(stringBytes));
    case "floats":
      return arrayBytes(TYPE.float32, value.value.map(float32Bytes));
    case "int32s":
      return arrayBytes(TYPE.int32, value.value.map(int32Bytes));
    default:
      return value satisfies never;
  }
}
