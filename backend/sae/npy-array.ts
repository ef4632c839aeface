import { SaeFileError } from "./sae-file-error.ts";
import type { StoredTensor } from "./safetensors-file.ts";
import { bytesPerValue, type TensorDtype } from "./tensor-values.ts";

const MAGIC = "\x93NUMPY";
const VERSION_AT = 6;
const DTYPES: Readonly<Record<string, TensorDtype>> = { "<f4": "F32", "<f2": "F16" };

/**
 * One array of NumPy's own format as a tensor. The header is a Python literal of three keys; nothing of it is executed,
 * and arrays of objects, which hold a pickle, are refused. Source: NumPy's description of the format.
 */
export function npyTensor(name: string, bytes: Buffer, file: string): StoredTensor {
  const { header, dataStart } = headerOf(name, bytes, file);
  const descriptor = /'descr':\s*'([^']*)'/.exec(header)?.[1];
  const fortran = /'fortran_order':\s*(True|False)/.exec(header)?.[1];
  const sides = /'shape':\s*\(([\d,\sL]*)\)/.exec(header)?.[1];
  if (descriptor === undefined || fortran === undefined || sides === undefined) {
    throw new SaeFileError(file, `array ${name} has a header that cannot be read`);
  }
  if (/^[|<>=]?O/.test(descriptor)) {
    throw new SaeFileError(file, `array ${name} holds Python objects (a pickle), which are never loaded`);
  }
  const dtype = DTYPES[descriptor];
  if (dtype === undefined) {
    throw new SaeFileError(file, `array ${name} is stored as ${descriptor}; <f4 and <f2 can be read`);
  }
  const shape = sides.split(",").flatMap((side) => (side.trim() === "" ? [] : [Number.parseInt(side, 10)]));
  const lengthBytes = shape.reduce((count, side) => count * side, 1) * bytesPerValue(dtype);
  if (bytes.length - dataStart !== lengthBytes) {
    throw new SaeFileError(
      file,
      `array ${name} of shape [${shape.join(", ")}] needs ${lengthBytes} bytes but has ${bytes.length - dataStart}`,
    );
  }
  return {
    name,
    dtype,
    // Column by column is row by row of the transposed matrix, whose sides are settled by the SAE's shape anyway.
    shape: fortran === "True" ? shape.toReversed() : shape,
    offsetBytes: dataStart,
    lengthBytes,
    bytes: bytes.subarray(dataStart),
  };
}

function headerOf(name: string, bytes: Buffer, file: string): { header: string; dataStart: number } {
  const malformed = () => new SaeFileError(file, `array ${name} is not in NumPy's format`);
  if (bytes.length < 12 || bytes.toString("latin1", 0, MAGIC.length) !== MAGIC) throw malformed();
  const version = bytes[VERSION_AT] ?? 0;
  if (version < 1 || version > 3) throw malformed();
  const lengthAt = VERSION_AT + 2;
  const length = version === 1 ? bytes.readUInt16LE(lengthAt) : bytes.readUInt32LE(lengthAt);
  const start = lengthAt + (version === 1 ? 2 : 4);
  if (start + length > bytes.length) throw malformed();
  return { header: bytes.toString("latin1", start, start + length), dataStart: start + length };
}
