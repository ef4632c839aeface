import { type Entry, openPromise, type ZipFile } from "yauzl";
import { npyTensor } from "./npy-array.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { StoredTensor } from "./safetensors-file.ts";

const ARRAY = ".npy";
/** A few times the largest encoder that is published. */
const MAX_ARRAY_BYTES = 8 * 2 ** 30;

/** Every array of a NumPy .npz file by name. Nothing in such a file is ever executed. Throws `SaeFileError`. */
export async function readNpzFile(file: string): Promise<Map<string, StoredTensor>> {
  const zip = await opened(file);
  const tensors = new Map<string, StoredTensor>();
  try {
    for await (const entry of zip.eachEntry()) {
      if (entry.fileName.endsWith(".pkl")) throw pickled(file);
      if (!entry.fileName.endsWith(ARRAY)) {
        throw new SaeFileError(file, `holds ${entry.fileName}, which is no NumPy array; not an .npz file?`);
      }
      const name = entry.fileName.slice(0, -ARRAY.length);
      tensors.set(name, npyTensor(name, await bytesOf(zip, entry, file), file));
    }
  } catch (thrown) {
    if (thrown instanceof SaeFileError) throw thrown;
    throw new SaeFileError(file, `cannot be read as a zip file (${messageOf(thrown)})`, thrown);
  } finally {
    zip.close();
  }
  if (tensors.size === 0) throw new SaeFileError(file, "holds no arrays");
  return tensors;
}

/** For a file that only Python could load, by executing it. */
export function pickled(file: string): SaeFileError {
  return new SaeFileError(file, "is a Python pickle (PyTorch), which is never loaded; convert it to safetensors");
}

async function opened(file: string): Promise<ZipFile> {
  try {
    return await openPromise(file, { lazyEntries: true, autoClose: false });
  } catch (thrown) {
    throw new SaeFileError(file, `cannot be read as a zip file (${messageOf(thrown)})`, thrown);
  }
}

async function bytesOf(zip: ZipFile, entry: Entry, file: string): Promise<Buffer> {
  if (entry.isEncrypted()) throw new SaeFileError(file, `${entry.fileName} is encrypted`);
  if (entry.uncompressedSize > MAX_ARRAY_BYTES) {
    throw new SaeFileError(
      file,
      `${entry.fileName} states ${entry.uncompressedSize} bytes; at most ${MAX_ARRAY_BYTES}`,
    );
  }
  const stream = await zip.openReadStreamPromise(entry);
  const chunks: Buffer[] = [];
  // The reader itself ends in an error when there are more or fewer bytes than the zip file states.
  for await (const chunk of stream) if (chunk instanceof Buffer) chunks.push(chunk);
  return Buffer.concat(chunks);
}

function messageOf(thrown: unknown): string {
  return thrown instanceof Error ? thrown.message : String(thrown);
}
