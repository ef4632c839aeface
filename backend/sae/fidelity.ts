import type { Fidelity } from "../../shared/protocol/report.ts";
import type { SaeTensors } from "../native/binding.ts";
import { decodeRow } from "./encoder.ts";

/** Collects rows and says how well the SAE explains them. Both sums are in residual units, normalisation undone. */
export class FidelityMeter {
  readonly #tensors: SaeTensors;
  readonly #decoderRows: Float32Array;
  readonly #sums: Float64Array;
  readonly #alive = new Set<number>();
  #squares = 0;
  #errors = 0;
  #active = 0;
  #rows = 0;

  constructor(tensors: SaeTensors, decoderRows: Float32Array) {
    this.#tensors = tensors;
    this.#decoderRows = decoderRows;
    this.#sums = new Float64Array(tensors.embeddingWidth);
  }

  /** One residual row and what the encoder made of it. */
  add(row: Float32Array, activations: Float32Array): void {
    const back = decodeRow(this.#tensors, this.#decoderRows, activations, row);
    row.forEach((value, i) => {
      this.#sums[i] = (this.#sums[i] ?? 0) + value;
      this.#squares += value * value;
      this.#errors += (value - (back[i] ?? 0)) ** 2;
    });
    activations.forEach((value, feature) => {
      if (value === 0) return;
      this.#active += 1;
      this.#alive.add(feature);
    });
    this.#rows += 1;
  }

  /** Null before the first row. */
  result(): Fidelity | null {
    if (this.#rows === 0) return null;
    const ofMean = this.#sums.reduce((sum, value) => sum + value * value, 0) / this.#rows;
    const total = this.#squares - ofMean;
    return {
      // Less than rounding leaves over is no variance.
      explained_variance: total > this.#squares * 1e-12 ? 1 - this.#errors / total : null,
      l0: this.#active / this.#rows,
      dead: this.#tensors.featureCount - this.#alive.size,
      tokens: this.#rows,
    };
  }
}
