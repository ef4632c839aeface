import { createHash } from "node:crypto";
import { createReadStream } from "node:fs";
import { mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { z } from "zod";
import { type Fidelity, fidelitySchema } from "../../shared/protocol/report.ts";

/** Raised when the same files would be measured otherwise. */
const MEASURE_VERSION = 1;

const digestSchema = z.object({ sha256: z.string() });

/** What a fidelity depends on. */
export interface FidelityKey {
  /** SHA-256 of the model's file. */
  readonly modelDigest: string;
  readonly saeDigest: string;
  readonly layer: number;
  readonly text: string;
  readonly trainedTokens: number | null;
}

/** Keeps measured fidelities in a folder, one small file each. Without a folder it keeps nothing. */
export class FidelityStore {
  readonly #folder: string | null;

  constructor(folder: string | null) {
    this.#folder = folder;
  }

  /** Null when it was never measured. */
  async find(key: FidelityKey): Promise<Fidelity | null> {
    const read = fidelitySchema.safeParse(await this.#read(fileOf(key)));
    return read.success ? read.data : null;
  }

  keep(key: FidelityKey, fidelity: Fidelity): Promise<void> {
    return this.#write(fileOf(key), fidelity);
  }

  /** SHA-256 of a model's file, computed again only when the file looks changed: it has many gigabytes. */
  async modelDigest(path: string): Promise<string> {
    const { size, mtimeMs, ino } = await stat(path);
    const name = `model-${sha256(JSON.stringify([path, size, mtimeMs, ino]))}.json`;
    const known = digestSchema.safeParse(await this.#read(name));
    if (known.success) return known.data.sha256;
    const hash = createHash("sha256");
    for await (const chunk of createReadStream(path, { highWaterMark: 1 << 20 })) {
      if (chunk instanceof Buffer) hash.update(chunk);
    }
    const digest = hash.digest("hex");
    await this.#write(name, { sha256: digest });
    return digest;
  }

  async #read(name: string): Promise<unknown> {
    if (this.#folder === null) return null;
    try {
      const document: unknown = JSON.parse(await readFile(join(this.#folder, name), "utf8"));
      return document;
    } catch {
      // Missing or cut off by a crash: it is measured again.
      return null;
    }
  }

  async #write(name: string, document: object): Promise<void> {
    if (this.#folder === null) return;
    await mkdir(this.#folder, { recursive: true });
    const file = join(this.#folder, name);
    const part = `${file}.${process.pid}.part`;
    await writeFile(part, JSON.stringify(document));
    await rename(part, file);
  }
}

function fileOf({ modelDigest, saeDigest, layer, text, trainedTokens }: FidelityKey): string {
  return `sae-${sha256(JSON.stringify([MEASURE_VERSION, modelDigest, saeDigest, layer, trainedTokens, sha256(text)]))}.json`;
}

function sha256(text: string): string {
  return createHash("sha256").update(text).digest("hex");
}
