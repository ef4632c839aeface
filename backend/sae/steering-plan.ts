import { ApiError } from "../../shared/errors/api-error.ts";
import {
  canonicalFormV2,
  steeringHash,
  type CanonicalSaeSet,
  type Sha256Hex,
} from "../../shared/steering/canonical-form.ts";
import type { AppliedSteering } from "../../shared/steering/receipt.ts";
import { clampStrength, type Steering, type SteeringOfSae } from "../../shared/steering/steering-set.ts";
import type { AdditiveEdit } from "../native/binding.ts";
import { checkFeatureIndex, resolveSae, type AttachedSae } from "./attached-sae.ts";

/** What one request does to the residual stream. */
export interface SteeringPlan {
  /** At most one per layer: the SAEs of one layer edit the same row and are summed. */
  readonly edits: readonly AdditiveEdit[];
  /** What the receipt says if the hook does its work; `edit` is the place in `edits`. */
  readonly applied: readonly (AppliedSteering & { readonly edit: number })[];
  /** Labels the KV cells these edits leave behind: content digests, layers, features, strengths. Empty if unsteered. */
  readonly editDigest: string;
}

export const UNSTEERED: SteeringPlan = { edits: [], applied: [], editDigest: "" };

interface ResolvedSet extends CanonicalSaeSet {
  readonly sae: AttachedSae;
  readonly clamped: boolean;
}

/**
 * A request's steering against the SAEs attached: h + Σ strength · W_dec[index], strengths brought back to ±200.
 * Throws an ApiError that names the member at fault.
 */
export function planSteering(
  steering: Steering | null | undefined,
  attached: readonly AttachedSae[],
  sha256Hex: Sha256Hex,
): SteeringPlan {
  const resolved = resolveSets(steering, attached);
  const moving = resolved.filter(({ features }) => features.some(({ strength }) => strength !== 0));
  if (moving.length === 0) return UNSTEERED;
  const hash = steeringHash(moving, sha256Hex);
  const layers = [...new Set(moving.map(({ layer }) => layer))].toSorted((a, b) => a - b);
  return {
    edits: layers.map((layer) => ({
      layer,
      fromPosition: 0,
      toPosition: -1,
      vector: sumOf(moving.filter((set) => set.layer === layer)),
    })),
    applied: moving.map(({ saeId, layer, features, clamped }) => ({
      saeId,
      layer,
      features: features.filter(({ strength }) => strength !== 0).length,
      hash,
      clamped,
      edit: layers.indexOf(layer),
    })),
    editDigest: sha256Hex(canonicalFormV2(moving)),
  };
}

/**
 * What really happened: an edit counts where the hook changed rows, or where the answer stands on cached cells that
 * carry the same edits.
 */
export function appliedSteering(
  plan: SteeringPlan,
  editedRows: ArrayLike<number>,
  cachedTokens: number,
): AppliedSteering[] {
  return plan.applied
    .filter(({ edit }) => (editedRows[edit] ?? 0) > 0 || cachedTokens > 0)
    .map(({ saeId, layer, features, hash, clamped }) => ({ saeId, layer, features, hash, clamped }));
}

function resolveSets(steering: Steering | null | undefined, attached: readonly AttachedSae[]): ResolvedSet[] {
  if (steering === null || steering === undefined) return [];
  const sets = Array.isArray(steering) ? steering : [steering];
  const seen = new Set<string>();
  const resolved: ResolvedSet[] = [];
  sets.forEach((set, place) => {
    const param = Array.isArray(steering) ? `steering[${place}]` : "steering";
    // An empty set asks for an unsteered answer and may come without any SAE attached.
    if (set.features.length === 0) return;
    const one = resolveSet(set, attached, param);
    if (seen.has(one.saeId)) {
      throw new ApiError("invalid_steering", {
        message: `'${param}': the SAE ${one.saeId} is steered by another set too.`,
        param: `${param}.sae_id`,
      });
    }
    seen.add(one.saeId);
    resolved.push(one);
  });
  return resolved;
}

function resolveSet(set: SteeringOfSae, attached: readonly AttachedSae[], param: string): ResolvedSet {
  const sae = resolveSae(attached, set.sae_id, `${param}.sae_id`);
  let clamped = false;
  const features = set.features.map((feature, place) => {
    checkFeatureIndex(sae, feature.index, `${param}.features[${place}].index`);
    const bounded = clampStrength(feature.strength);
    clamped ||= bounded.clamped;
    return {
      index: feature.index,
      strength: bounded.strength,
      mode: feature.mode ?? "add",
      unit: feature.unit ?? "raw",
    };
  });
  return {
    saeId: sae.id,
    saeDigest: sae.digest,
    layer: sae.layer,
    positions: set.positions ?? "all",
    features,
    sae,
    clamped,
  };
}

/** Summed in f64 and rounded once, so that the order of features does not matter to the result's last bits. */
function sumOf(sets: readonly ResolvedSet[]): Float32Array {
  const width = sets[0]?.sae.embeddingWidth ?? 0;
  const sum = new Float64Array(width);
  for (const { sae, features } of sets) {
    for (const { index, strength } of features.toSorted((a, b) => a.index - b.index)) {
      const start = index * width;
      for (let i = 0; i < width; i += 1) sum[i] = (sum[i] ?? 0) + strength * (sae.decoderRows[start + i] ?? 0);
    }
  }
  return Float32Array.from(sum);
}
