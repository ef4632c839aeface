import type { LoadedSae } from "../engine-model.ts";

/** One SAE as callers see it. */
export function describeSae(sae: LoadedSae, model: string) {
  const { format, architecture, folds } = sae.about;
  return {
    id: sae.id,
    object: "sae" as const,
    model,
    layer: sae.layer,
    hook_point: sae.hookPoint,
    d_in: sae.embeddingWidth,
    features: sae.featureCount,
    labelled: [...sae.notes.values()].filter(({ label }) => label !== null).length,
    format,
    architecture,
    digest: sae.digest,
    /**
     * Which decoder row the unit `raw` multiplies: the file's own, or that row with these factors folded in, so that
     * one unit of activation is one row.
     */
    decoder_rows: folds.length === 0 ? ("stored" as const) : ("folded" as const),
    folds: [...folds],
    fidelity: sae.fidelity ?? ("unmeasured" as const),
  };
}
