import { z } from "zod";
import { SaeFileError } from "./sae-file-error.ts";
import { bytesPerValue, isTensorDtype, type TensorDtype } from "./tensor-values.ts";

/** The format allows 100 MB; an SAE has a handful of tensors and needs a few hundred bytes. */
export const MAX_HEADER_BYTES = 1_048_576;
/** Bytes before the header: its length as little-endian u64. */
export const LENGTH_BYTES = 8;

export interface TensorPlace {
  readonly name: string;
  readonly dtype: TensorDtype;
  readonly shape: readonly number[];
  /** From the start of the file. */
  readonly offsetBytes: number;
  readonly lengthBytes: number;
}

const entrySchema = z.object({
  dtype: z.string(),
  shape: z.array(z.int().min(0)).max(8),
  data_offsets: z.tuple([z.int().min(0), z.int().min(0)]),
});
const headerSchema = z.record(z.string(), z.unknown());

/** The header's length as the first eight bytes state it, checked against the file. */
export function headerLengthBytes(prefix: Uint8Array, fileBytes: number, file: string): number {
  if (prefix.byteLength < LENGTH_BYTES) {
    throw new SaeFileError(file, `is ${fileBytes} bytes long, too short for a safetensors file`);
  }
  const length = new DataView(prefix.buffer, prefix.byteOffset, LENGTH_BYTES).getBigUint64(0, true);
  if (length > BigInt(MAX_HEADER_BYTES)) {
    throw new SaeFileError(
      file,
      `states a header of ${length} bytes (at most ${MAX_HEADER_BYTES}); not a safetensors file?`,
    );
  }
  if (length > BigInt(fileBytes - LENGTH_BYTES)) {
    throw new SaeFileError(
      file,
      `states a header of ${length} bytes but is only ${fileBytes} bytes long; is it cut off?`,
    );
  }
  return Number(length);
}

/**
 * Where every tensor lies. Refuses unknown number formats, lengths that disagree with the shape, ranges outside the
 * file and tensors that overlap, so that no later read can go wrong. Source: the safetensors format description.
 */
export function readSafetensorsHeader(header: Uint8Array, fileBytes: number, file: string): TensorPlace[] {
  const dataStart = LENGTH_BYTES + header.byteLength;
  const places: TensorPlace[] = [];
  for (const [name, value] of Object.entries(parseHeader(header, file))) {
    if (name === "__metadata__") continue;
    places.push(placeOf(name, value, { dataStart, fileBytes, file }));
  }
  if (places.length === 0) throw new SaeFileError(file, "holds no tensors");
  const byOffset = places.toSorted((a, b) => a.offsetBytes - b.offsetBytes);
  byOffset.forEach((place, at) => {
    const before = byOffset[at - 1];
    if (before !== undefined && before.offsetBytes + before.lengthBytes > place.offsetBytes) {
      throw new SaeFileError(file, `tensors ${before.name} and ${place.name} overlap`);
    }
  });
  return places;
}

function parseHeader(header: Uint8Array, file: string): Record<string, unknown> {
  try {
    const document: unknown = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(header));
    return headerSchema.parse(document);
  } catch (thrown) {
    throw new SaeFileError(file, "has a header that is not a JSON object; not a safetensors file?", thrown);
  }
}

function placeOf(
  name: string,
  value: unknown,
  within: { dataStart: number; fileBytes: number; file: string },
): TensorPlace {
  const { dataStart, fileBytes, file } = within;
  const entry = entrySchema.safeParse(value);
  if (!entry.success) throw new SaeFileError(file, `tensor ${name} has a malformed header entry`, entry.error);
  const { dtype, shape, data_offsets: offsets } = entry.data;
  if (!isTensorDtype(dtype)) {
    throw new SaeFileError(file, `tensor ${name} is stored as ${dtype}; F32, F16 and BF16 can be read`);
  }
  const [begin, end] = offsets;
  const lengthBytes = shape.reduce((count, side) => count * side, 1) * bytesPerValue(dtype);
  if (end - begin !== lengthBytes) {
    throw new SaeFileError(
      file,
      `tensor ${name} of shape [${shape.join(", ")}] needs ${lengthBytes} bytes but its range has ${end - begin}`,
    );
  }
  if (dataStart + end > fileBytes) {
    throw new SaeFileError(
      file,
      `tensor ${name} ends at byte ${dataStart + end} but the file has ${fileBytes} bytes; is it cut off?`,
    );
  }
  return { name, dtype, shape, offsetBytes: dataStart + begin, lengthBytes };
}
