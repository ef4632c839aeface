import { z } from "zod";

/** Texts of one side. */
export const MAX_RANKED_TEXTS = 32;
/** Of all texts together: it is computed beside everybody's answers. */
export const MAX_RANKED_TOKENS = 8_192;

const texts = z.array(z.string().min(1)).min(1).max(MAX_RANKED_TEXTS);

/** The body of POST /v1/saes/{id}/features/rank. */
export const rankRequestSchema = z.strictObject({
  /** Texts that have what is looked for. */
  positive: texts,
  /** Texts that do not, as alike otherwise as possible. */
  negative: texts,
  limit: z.int().min(1).max(200).default(20),
});
export type RankRequest = z.output<typeof rankRequestSchema>;

export interface RankedFeature {
  readonly index: number;
  /** -1 to 1: difference of the means, as a share of the largest activation in any of these texts. */
  readonly score: number;
  /** Activation per token, averaged within a text and then over the texts of a side. */
  readonly positive_mean: number;
  readonly negative_mean: number;
  /** Share of a side's texts in which it is active at all. */
  readonly positive_share: number;
  readonly negative_share: number;
}

interface Side {
  readonly sums: Float64Array;
  readonly active: Float64Array;
  texts: number;
}

/** Collects the activations of two sets of texts and ranks the features that tell them apart. Texts count alike, long or short. */
export class FeatureRanking {
  readonly #sides: Readonly<Record<"positive" | "negative", Side>>;
  readonly #largest: Float64Array;

  constructor(featureCount: number) {
    const side = (): Side => ({
      sums: new Float64Array(featureCount),
      active: new Float64Array(featureCount),
      texts: 0,
    });
    this.#sides = { positive: side(), negative: side() };
    this.#largest = new Float64Array(featureCount);
  }

  /** The rows of one text, F activations each; at least one. */
  add(kind: "positive" | "negative", rows: readonly Float32Array[]): void {
    const side = this.#sides[kind];
    const touched = new Set<number>();
    for (const row of rows) {
      row.forEach((value, feature) => {
        if (value === 0) return;
        side.sums[feature] = (side.sums[feature] ?? 0) + value / rows.length;
        this.#largest[feature] = Math.max(this.#largest[feature] ?? 0, value);
        touched.add(feature);
      });
    }
    for (const feature of touched) side.active[feature] = (side.active[feature] ?? 0) + 1;
    side.texts += 1;
  }

  /** Largest difference first, whichever side it speaks for; the sign says which. Silent features are left out. */
  ranked(limit: number): RankedFeature[] {
    const { positive, negative } = this.#sides;
    const found: RankedFeature[] = [];
    this.#largest.forEach((largest, index) => {
      if (largest === 0) return;
      const positiveMean = mean(positive.sums, positive, index);
      const negativeMean = mean(negative.sums, negative, index);
      found.push({
        index,
        score: (positiveMean - negativeMean) / largest,
        positive_mean: positiveMean,
        negative_mean: negativeMean,
        positive_share: mean(positive.active, positive, index),
        negative_share: mean(negative.active, negative, index),
      });
    });
    return found.toSorted((a, b) => Math.abs(b.score) - Math.abs(a.score) || a.index - b.index).slice(0, limit);
  }
}

function mean(values: Float64Array, side: Side, feature: number): number {
  return (values[feature] ?? 0) / Math.max(1, side.texts);
}
