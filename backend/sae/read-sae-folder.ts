import { basename } from "node:path";
import { contentDigest } from "./content-digest.ts";
import { readGemmaScope } from "./gemma-scope-reader.ts";
import { readLlamaScope } from "./llama-scope-reader.ts";
import { pickled, readNpzFile } from "./npz-file.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { SaeFiles } from "./sae-files.ts";
import { SaeFolder, type WeightsCandidate } from "./sae-folder.ts";
import { readSaeLens } from "./saelens-reader.ts";
import { readSafetensorsFile, type StoredTensor } from "./safetensors-file.ts";
import { readSparsify } from "./sparsify-reader.ts";
import { TensorTable } from "./tensor-table.ts";

/** One of these is in every SAE; a file without them (SAELens's sparsity.safetensors) lies beside one. */
const ENCODERS = ["W_enc", "w_enc", "encoder.weight", "W_dec", "w_dec"];

/**
 * Reads the SAE in a folder, whoever wrote it: SAELens (any version), Gemma Scope, Llama Scope or sparsify, recognised
 * by its tensors. Pickles are never loaded. Throws `SaeFileError` with the file and what was found.
 */
export async function readSaeFolder(path: string): Promise<SaeFiles> {
  const folder = await SaeFolder.open(path);
  const { file, kind, tensors } = await onlyWeights(folder);
  const table = new TensorTable(file, tensors);
  const parts = await (kind === "zip"
    ? readGemmaScope(folder, table)
    : !table.has("encoder.weight")
      ? readSaeLens(folder, table)
      : table.has("W_dec")
        ? readSparsify(folder, table)
        : readLlamaScope(folder, table));
  return { ...parts, digest: contentDigest(tensors, parts) };
}

interface Weights extends WeightsCandidate {
  readonly tensors: ReadonlyMap<string, StoredTensor>;
}

async function onlyWeights(folder: SaeFolder): Promise<Weights> {
  const candidates = await folder.weights();
  const found: Weights[] = [];
  const besides: Weights[] = [];
  for (const { file, kind } of candidates) {
    if (kind === "pickle") continue;
    const tensors = kind === "zip" ? await readNpzFile(file) : await readSafetensorsFile(file);
    const weights = { file, kind, tensors };
    (ENCODERS.some((name) => tensors.has(name)) ? found : besides).push(weights);
  }
  const [only, ...others] = found;
  if (only === undefined) {
    const pickle = candidates.find(({ kind }) => kind === "pickle");
    if (pickle !== undefined) throw pickled(pickle.file);
    const named = besides.map(({ file, tensors }) => `${basename(file)} with ${[...tensors.keys()].join(", ")}`);
    throw new SaeFileError(
      folder.path,
      `holds no SAE weights (safetensors or npz); found ${named.length > 0 ? named.join("; ") : folder.found}`,
    );
  }
  if (others.length > 0) {
    throw new SaeFileError(folder.path, `holds several SAEs: ${found.map(({ file }) => basename(file)).join(", ")}`);
  }
  return only;
}
