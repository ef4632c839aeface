import type { ActivationResult } from "../../shared/steering/activations.ts";
import type { SensedRows } from "../native/binding.ts";
import type { SensingRequestPlan, SensingSet } from "./sensing-plan.ts";

type Row = ActivationResult["positions"][number];

/** The form that `steerage.activations` has: as the caller asked. */
export type Activations = ActivationResult | readonly ActivationResult[];

/** Collects everything that one request senses. */
export class SensedActivations {
  readonly #asList: boolean;
  readonly #rows: readonly ActivationRows[];

  constructor({ plans, asList }: SensingSet) {
    this.#asList = asList;
    this.#rows = plans.map((plan) => new ActivationRows(plan));
  }

  add(sensed: SensedRows): void {
    this.#rows[sensed.planIndex]?.add(sensed);
  }

  /** Rows that a stream may tell now, each once; null when there are none. */
  take(): Activations | null {
    const taken = this.#rows.flatMap((rows) => rows.take() ?? []);
    return taken.length === 0 ? null : this.#formed(taken);
  }

  /** What was not told yet: everything, unless it was streamed. */
  result(): Activations {
    return this.#formed(this.#rows.map((rows) => rows.result()));
  }

  #formed(results: readonly ActivationResult[]): Activations {
    const [only] = results;
    return this.#asList || only === undefined ? results : only;
  }
}

/** Collects the sensed rows of one plan, step by step, into the answer's member. */
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

  /** The rows since the last call, of a plan that streams; the last row alone is known only at the end. */
  take(): ActivationResult | null {
    const { stream, lastOnly } = this.#plan;
    if (!stream || lastOnly || this.#rows.size === 0) return null;
    const taken = this.result();
    this.#rows.clear();
    return taken;
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
