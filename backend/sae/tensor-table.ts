import { asFeatureRows } from "./matrix-orientation.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { StoredTensor } from "./safetensors-file.ts";
import { valuesAsF32 } from "./tensor-values.ts";

/** The tensors of one weights file, taken by name and checked against the shape of the SAE. */
export class TensorTable {
  readonly file: string;
  readonly stored: ReadonlyMap<string, StoredTensor>;

  constructor(file: string, stored: ReadonlyMap<string, StoredTensor>) {
    this.file = file;
    this.stored = stored;
  }

  has(name: string): boolean {
    return this.stored.has(name);
  }

  /** F rows of d values, whichever way they lie in the file. */
  featureRows(name: string, embeddingWidth: number, featureCount: number): Float32Array {
    const tensor = this.#present(name);
    const shape = `[${tensor.shape.join(", ")}]`;
    const rows = asFeatureRows(valuesAsF32(tensor.bytes, tensor.dtype), tensor.shape, embeddingWidth, featureCount);
    if (rows.kind === "rows") return this.#finite(name, rows.values);
    throw new SaeFileError(
      this.file,
      rows.kind === "ambiguous"
        ? `tensor ${name} is square, ${shape}: its orientation cannot be told`
        : `tensor ${name} has shape ${shape}, but the SAE has d_in ${embeddingWidth} and d_sae ${featureCount}`,
    );
  }

  vector(name: string, length: number): Float32Array {
    const tensor = this.#present(name);
    // A few writers keep a leading 1.
    if (this.lengthOf(name) !== length || !tensor.shape.every((side) => side === 1 || side === length)) {
      throw new SaeFileError(this.file, `tensor ${name} has shape [${tensor.shape.join(", ")}], expected [${length}]`);
    }
    return this.#finite(name, valuesAsF32(tensor.bytes, tensor.dtype));
  }

  /** Number of values. */
  lengthOf(name: string): number {
    return this.#present(name).shape.reduce((count, side) => count * side, 1);
  }

  /** Any tensor that a reader does not know would change the maths. */
  refuseOthers(known: readonly string[], what: string): void {
    for (const name of this.stored.keys()) {
      if (!known.includes(name)) throw new SaeFileError(this.file, `has a tensor ${name} that ${what} does not have`);
    }
  }

  #present(name: string): StoredTensor {
    const tensor = this.stored.get(name);
    if (tensor !== undefined) return tensor;
    throw new SaeFileError(this.file, `has no tensor ${name}; found ${[...this.stored.keys()].join(", ")}`);
  }

  /** One NaN in a weight would silently end every answer that touches it. */
  #finite(name: string, values: Float32Array): Float32Array {
    if (values.every((value) => Number.isFinite(value))) return values;
    throw new SaeFileError(this.file, `holds a value that is not finite (in ${name})`);
  }
}
