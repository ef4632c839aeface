import { open, type FileHandle } from "node:fs/promises";
import { SaeFileError } from "./sae-file-error.ts";
import { LENGTH_BYTES, headerLengthBytes, readSafetensorsHeader, type TensorPlace } from "./safetensors-header.ts";

/** One tensor as it lies in the file. */
export interface StoredTensor extends TensorPlace {
  readonly bytes: Uint8Array;
}

/** Every tensor of a safetensors file by name. Nothing in such a file is ever executed. Throws `SaeFileError`. */
export async function readSafetensorsFile(file: string): Promise<Map<string, StoredTensor>> {
  const handle = await openForReading(file);
  try {
    const { size } = await handle.stat();
    const prefix = await readRange(handle, 0, Math.min(LENGTH_BYTES, size), file);
    const headerBytes = headerLengthBytes(prefix, size, file);
    const header = await readRange(handle, LENGTH_BYTES, headerBytes, file);
    const tensors = new Map<string, StoredTensor>();
    for (const place of readSafetensorsHeader(header, size, file)) {
      const bytes = await readRange(handle, place.offsetBytes, place.lengthBytes, file);
      tensors.set(place.name, { ...place, bytes });
    }
    return tensors;
  } finally {
    await handle.close();
  }
}

async function openForReading(file: string): Promise<FileHandle> {
  try {
    return await open(file, "r");
  } catch (thrown) {
    throw new SaeFileError(file, "cannot be opened", thrown);
  }
}

async function readRange(handle: FileHandle, offset: number, length: number, file: string): Promise<Uint8Array> {
  const bytes = new Uint8Array(length);
  let done = 0;
  while (done < length) {
    // One read may not carry more than 2 GiB.
    const step = Math.min(length - done, 2 ** 30);
    const { bytesRead } = await handle.read(bytes, done, step, offset + done);
    if (bytesRead === 0) throw new SaeFileError(file, `ended at byte ${offset + done} while it was read`);
    done += bytesRead;
  }
  return bytes;
}
