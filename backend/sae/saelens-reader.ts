import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { SaeTensors } from "../native/binding.ts";
import { contentDigest } from "./content-digest.ts";
import { asFeatureRows } from "./matrix-orientation.ts";
import { SaeFileError } from "./sae-file-error.ts";
import { readSaeConfig, type SaeConfig } from "./saelens-config.ts";
import { readSafetensorsFile, type StoredTensor } from "./safetensors-file.ts";
import { valuesAsF32 } from "./tensor-values.ts";

export const CONFIG_FILE = "cfg.json";
export const WEIGHTS_FILE = "sae_weights.safetensors";

export interface SaeFiles {
  readonly config: SaeConfig;
  /** For the native core, or for the reference encoder. */
  readonly tensors: SaeTensors;
  /** F rows of d values: row i is the direction of feature i, as stored. */
  readonly decoderRows: Float32Array;
  /** SHA-256 over the tensors, in hex. */
  readonly digest: string;
}

/** Tensors that an architecture has; any other would change the maths and is refused. */
const TENSORS: Readonly<Record<SaeConfig["architecture"], readonly string[]>> = {
  standard: ["W_enc", "W_dec", "b_enc", "b_dec"],
  jumprelu: ["W_enc", "W_dec", "b_enc", "b_dec", "threshold"],
};

/** Reads an SAE folder in SAELens layout. Throws `SaeFileError` with the file and what was found. */
export async function readSaeLensFolder(folder: string): Promise<SaeFiles> {
  const configFile = join(folder, CONFIG_FILE);
  const config = readSaeConfig(await readJson(configFile), configFile);
  const file = join(folder, WEIGHTS_FILE);
  const stored = await readSafetensorsFile(file);
  checkNames(stored, config, file);
  const { embeddingWidth: d, featureCount: f } = config;
  const matrix = (name: string): Float32Array => {
    const tensor = present(stored, name, file);
    const rows = asFeatureRows(valuesAsF32(tensor.bytes, tensor.dtype), tensor.shape, d, f);
    if (rows.kind === "rows") return rows.values;
    const shape = `[${tensor.shape.join(", ")}]`;
    throw new SaeFileError(
      file,
      rows.kind === "ambiguous"
        ? `tensor ${name} is square, ${shape}: its orientation cannot be told`
        : `tensor ${name} has shape ${shape}, but cfg.json says d_in ${d} and d_sae ${f}`,
    );
  };
  const vector = (name: string, length: number): Float32Array => {
    const tensor = present(stored, name, file);
    const values = valuesAsF32(tensor.bytes, tensor.dtype);
    // A few writers keep a leading 1.
    if (values.length === length && tensor.shape.every((side) => side === 1 || side === length)) return values;
    throw new SaeFileError(file, `tensor ${name} has shape [${tensor.shape.join(", ")}], expected [${length}]`);
  };
  const decoderRows = matrix("W_dec");
  const tensors: SaeTensors = {
    embeddingWidth: d,
    featureCount: f,
    encoderColumns: matrix("W_enc"),
    encoderBias: vector("b_enc", f),
    decoderBias: vector("b_dec", d),
    applyDecoderBiasToInput: config.applyDecoderBiasToInput,
    activation: config.architecture === "jumprelu" ? "jumprelu" : "relu",
    threshold: config.architecture === "jumprelu" ? vector("threshold", f) : new Float32Array(0),
  };
  checkFinite({ ...tensors, decoderRows }, file);
  return { config, tensors, decoderRows, digest: contentDigest(stored) };
}

async function readJson(file: string): Promise<unknown> {
  let text: string;
  try {
    text = await readFile(file, "utf8");
  } catch (thrown) {
    throw new SaeFileError(file, "cannot be read", thrown);
  }
  try {
    const document: unknown = JSON.parse(text);
    return document;
  } catch (thrown) {
    throw new SaeFileError(file, "is not JSON", thrown);
  }
}

function present(stored: ReadonlyMap<string, StoredTensor>, name: string, file: string): StoredTensor {
  const tensor = stored.get(name);
  if (tensor !== undefined) return tensor;
  throw new SaeFileError(file, `has no tensor ${name}; found ${[...stored.keys()].join(", ")}`);
}

function checkNames(stored: ReadonlyMap<string, StoredTensor>, config: SaeConfig, file: string): void {
  for (const tensor of stored.values()) {
    if (TENSORS[config.architecture].includes(tensor.name)) continue;
    // Before version 6 a factor per feature was saved; all ones means that it was never trained.
    const factorOfOnes =
      tensor.name === "scaling_factor" && valuesAsF32(tensor.bytes, tensor.dtype).every((value) => value === 1);
    if (factorOfOnes) continue;
    throw new SaeFileError(file, `has a tensor ${tensor.name} that a ${config.architecture} SAE does not have`);
  }
}

/** One NaN in a weight would silently end every answer that touches it. */
function checkFinite(tensors: Readonly<Record<string, unknown>>, file: string): void {
  for (const [name, values] of Object.entries(tensors)) {
    if (values instanceof Float32Array && !values.every((value) => Number.isFinite(value))) {
      throw new SaeFileError(file, `holds a value that is not finite (in ${name})`);
    }
  }
}
