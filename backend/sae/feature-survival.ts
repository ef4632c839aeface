/** Active features at one position of a text. */
export interface ActivePosition {
  readonly position: number;
  readonly token_id: number;
  readonly features: readonly { readonly index: number; readonly value: number }[];
}

export interface Survival {
  /** Features that vary over the text on the reference. */
  readonly compared: number;
  /** Of those, the ones whose activations still follow the reference's. */
  readonly survived: number;
  /** Null where there was nothing to compare. */
  readonly share: number | null;
}

/** Pearson correlation from which a feature counts as the same. */
export const SURVIVAL_CORRELATION = 0.9;

interface Sums {
  reference: number;
  referenceSquares: number;
  measured: number;
  measuredSquares: number;
  products: number;
}

/**
 * Which features do on this model what they do on the reference, token by token of the same text: what quantisation
 * costs an SAE that was trained on the unquantised model (method: arXiv 2606.03002). Null when the tokens differ.
 */
export function featureSurvival(
  reference: readonly ActivePosition[],
  measured: readonly ActivePosition[],
): Survival | null {
  const same = reference.length === measured.length;
  if (!same || reference.some(({ token_id: token }, place) => token !== measured[place]?.token_id)) return null;
  const sums = new Map<number, Sums>();
  const of = (index: number): Sums => {
    const known = sums.get(index);
    if (known !== undefined) return known;
    const fresh = { reference: 0, referenceSquares: 0, measured: 0, measuredSquares: 0, products: 0 };
    sums.set(index, fresh);
    return fresh;
  };
  reference.forEach(({ features }, place) => {
    const here = new Map((measured[place]?.features ?? []).map(({ index, value }) => [index, value]));
    for (const { index, value } of features) {
      const sum = of(index);
      sum.reference += value;
      sum.referenceSquares += value * value;
      sum.products += value * (here.get(index) ?? 0);
    }
    for (const [index, value] of here) {
      const sum = of(index);
      sum.measured += value;
      sum.measuredSquares += value * value;
    }
  });
  const correlations = [...sums.values()]
    .map((sum) => correlation(sum, reference.length))
    .filter((value) => value !== null);
  const survived = correlations.filter((value) => value >= SURVIVAL_CORRELATION).length;
  const compared = correlations.length;
  return { compared, survived, share: compared === 0 ? null : survived / compared };
}

/** Null for a feature that does not vary on the reference; 0 for one that does not vary here. */
function correlation(sum: Sums, count: number): number | null {
  const ofReference = count * sum.referenceSquares - sum.reference ** 2;
  const ofMeasured = count * sum.measuredSquares - sum.measured ** 2;
  if (sum.reference === 0 || ofReference <= 0) return null;
  if (ofMeasured <= 0) return 0;
  return (count * sum.products - sum.reference * sum.measured) / Math.sqrt(ofReference * ofMeasured);
}
