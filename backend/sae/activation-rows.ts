import type { ActivationResult } from "../../shared/steering/activations.ts";
import type { SensedRows } from "../native/binding.ts";
import type { SensingRequestPlan } from "./sensing-plan.ts";

type Row = ActivationResult["positions"][number];

/** Collects the sensed rows of one request, step by step, into the answer's member. */
export class ActivationRows {
  readonly #plan: SensingRequestPlan;
  readonly #rows = new Map<number, Row>();

  constructor(plan: SensingRequestPlan) {
    this.#plan = plan;
  }

  add(sensed: SensedRows): void {
    let entry = 0;
    sensed.positions.forEach((position, row) => {
      const count = sensed.counts[row] ?? 0;
      const values = new Map<number, number>();
      for (let end = entry + count; entry < end; entry += 1) {
        values.set(sensed.indices[entry] ?? 0, sensed.values[entry] ?? 0);
      }
      if (this.#plan.lastOnly) this.#rows.clear();
      this.#rows.set(position, { position, token_id: sensed.tokens[row] ?? 0, features: this.#ranked(values) });
    });
  }

  /** Largest value first, ties by index. A feature that was asked for by index is listed even where it is silent. */
  #ranked(values: ReadonlyMap<number, number>): Row["features"] {
    const { features, topK } = this.#plan;
    const entries =
      features === null
        ? [...values].map(([index, value]) => ({ index, value }))
        : Array.from(features, (index) => ({ index, value: values.get(index) ?? 0 }));
    return entries.toSorted((a, b) => b.value - a.value || a.index - b.index).slice(0, topK);
  }

  /** Positions ascend. */
  result(): ActivationResult {
    const { sae, readPoint } = this.#plan;
    return {
      sae_id: sae.id,
      layer: sae.layer,
      read_point: readPoint,
      positions: [...this.#rows.values()].toSorted((a, b) => a.position - b.position),
    };
  }
}
