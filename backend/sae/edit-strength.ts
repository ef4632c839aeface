import { ApiError } from "../../shared/errors/api-error.ts";
import type { CanonicalEdit } from "../../shared/steering/canonical-form.ts";
import { clampEdit, type EditCondition, type FeatureEdit } from "../../shared/steering/steering-set.ts";
import { checkFeatureIndex, type AttachedSae } from "./attached-sae.ts";

/** One feature's edit with its strength in raw units, inside the bounds. */
export interface ResolvedEdit extends CanonicalEdit {
  readonly clamped: boolean;
}

/**
 * Units come down to raw: `unit` divides by the length of the decoder row, `max` multiplies by the recorded maximum.
 * `param` names the feature. Throws an ApiError that names the member at fault.
 */
export function resolveEdit(
  feature: FeatureEdit,
  sae: AttachedSae,
  setCondition: EditCondition | null,
  param: string,
): ResolvedEdit {
  const { index } = feature;
  checkFeatureIndex(sae, index, `${param}.index`);
  if (feature.when) checkFeatureIndex(sae, feature.when.index, `${param}.when.index`);
  const mode = feature.mode ?? "add";
  const unit = feature.unit ?? "raw";
  const recordedMaximum = recordedMaximumOf(sae, index);
  const raw = (feature.strength ?? 0) * factorOf(unit, index, sae, `${param}.unit`);
  const { strength, clamped } = clampEdit(mode, raw, recordedMaximum);
  return { index, mode, unit, strength, clamped, when: feature.when ?? setCondition };
}

/** A feature that was never seen active has no scale to share in. */
function recordedMaximumOf(sae: AttachedSae, index: number): number | null {
  const maximum = sae.recordedMaxima?.get(index) ?? 0;
  return maximum > 0 ? maximum : null;
}

function factorOf(unit: CanonicalEdit["unit"], index: number, sae: AttachedSae, param: string): number {
  if (unit === "raw") return 1;
  if (unit === "max") {
    const maximum = recordedMaximumOf(sae, index);
    if (maximum !== null) return maximum;
    throw new ApiError("invalid_steering", {
      message: `'${param}': no maximum of feature ${index} is recorded for ${sae.id}; state the strength as 'raw' or 'unit'.`,
      param,
    });
  }
  const row = sae.decoderRows.subarray(index * sae.embeddingWidth, (index + 1) * sae.embeddingWidth);
  const length = Math.sqrt(row.reduce((sum, value) => sum + value * value, 0));
  if (length > 0) return 1 / length;
  throw new ApiError("invalid_steering", {
    message: `'${param}': feature ${index} of ${sae.id} has no direction, so no unit.`,
    param,
  });
}
