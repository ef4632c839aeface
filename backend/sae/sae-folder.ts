import { open, readdir, readFile, stat } from "node:fs/promises";
import { basename, join } from "node:path";
import { SaeFileError } from "./sae-file-error.ts";

/** Larger ones describe features, not the SAE. */
const MAX_JSON_BYTES = 1_048_576;
/** How many of a folder's files a message names. */
const NAMED_FILES = 8;
/** Where Llama Scope keeps its weights. */
const NESTED = "checkpoints";

export type WeightsKind = "safetensors" | "zip" | "pickle";
export interface WeightsCandidate {
  readonly file: string;
  readonly kind: WeightsKind;
}
interface JsonFile {
  readonly file: string;
  readonly document: Readonly<Record<string, unknown>>;
}

/** The files of one SAE, told apart by what is in them. Nothing in them is ever executed. */
export class SaeFolder {
  readonly path: string;
  readonly #files: readonly string[];

  private constructor(path: string, files: readonly string[]) {
    this.path = path;
    this.#files = files;
  }

  static async open(path: string): Promise<SaeFolder> {
    let names: string[];
    try {
      names = await readdir(path);
    } catch (thrown) {
      const missing = thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT";
      throw new SaeFileError(path, missing ? "does not exist" : "cannot be read as a folder", thrown);
    }
    const nested = names.includes(NESTED) ? await readdir(join(path, NESTED)).catch(() => []) : [];
    const files = [...names.map((name) => join(path, name)), ...nested.map((name) => join(path, NESTED, name))];
    const regular = await Promise.all(files.map(async (file) => ((await stat(file)).isFile() ? [file] : [])));
    return new SaeFolder(path, regular.flat().toSorted());
  }

  /** Names of the files, for messages. */
  get found(): string {
    const names = this.#files.map((file) => file.slice(this.path.length + 1));
    if (names.length === 0) return "nothing";
    const more = names.length > NAMED_FILES ? ` and ${names.length - NAMED_FILES} more` : "";
    return `${names.slice(0, NAMED_FILES).join(", ")}${more}`;
  }

  /** Files that hold tensors, or that a program would have to be executed to read. */
  async weights(): Promise<WeightsCandidate[]> {
    const candidates = await Promise.all(
      this.#files.map(async (file) => {
        const kind = await kindOf(file);
        return kind === null ? [] : [{ file, kind }];
      }),
    );
    return candidates.flat();
  }

  /** The JSON object of this name, or the only one that `matches`. */
  async json(name: string, matches: (document: Readonly<Record<string, unknown>>) => boolean): Promise<JsonFile> {
    const named = await this.optionalJson(name);
    if (named !== null) return named;
    const others = await Promise.all(this.#files.map((file) => readObject(file).catch(() => null)));
    const found = others.filter((one) => one !== null).filter(({ document }) => matches(document));
    const [only] = found;
    if (only === undefined) throw new SaeFileError(join(this.path, name), `cannot be read; found ${this.found}`);
    if (found.length > 1) {
      throw new SaeFileError(
        this.path,
        `holds several configurations: ${found.map(({ file }) => basename(file)).join(", ")}`,
      );
    }
    return only;
  }

  /** The JSON object of this name, or null where there is no such file. */
  async optionalJson(name: string): Promise<JsonFile | null> {
    const file = join(this.path, name);
    if (!this.#files.includes(file)) return null;
    const read = await readObject(file);
    if (read === null) throw new SaeFileError(file, "is not a JSON object");
    return read;
  }
}

async function readObject(file: string): Promise<JsonFile | null> {
  if (!file.endsWith(".json") || (await stat(file)).size > MAX_JSON_BYTES) return null;
  let document: unknown;
  try {
    document = JSON.parse(await readFile(file, "utf8"));
  } catch (thrown) {
    throw new SaeFileError(file, "is not JSON", thrown);
  }
  return isObject(document) ? { file, document } : null;
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** By the first bytes; a file that only its name makes a safetensors file is one too, so that its fault is told. */
async function kindOf(file: string): Promise<WeightsKind | null> {
  const head = await firstBytes(file, 9);
  if (head.length >= 4 && head.readUInt32LE(0) === 0x04034b50) return "zip";
  const pickled = head.length >= 2 && head[0] === 0x80 && (head[1] ?? 0) >= 2 && (head[1] ?? 0) <= 5;
  const counted = head.length === 9 && head.readBigUInt64LE(0) <= 104_857_600n && head[8] === 0x7b;
  if (counted || file.endsWith(".safetensors")) return "safetensors";
  return pickled ? "pickle" : null;
}

async function firstBytes(file: string, count: number): Promise<Buffer> {
  const handle = await open(file, "r");
  try {
    const { buffer, bytesRead } = await handle.read(Buffer.alloc(count), 0, count, 0);
    return buffer.subarray(0, bytesRead);
  } finally {
    await handle.close();
  }
}
