import { ApiError } from "../../shared/errors/api-error.ts";
import { steeringHash, type CanonicalSaeSet, type Sha256Hex } from "../../shared/steering/canonical-form.ts";
import { positionsText } from "../../shared/steering/positions.ts";
import type { AppliedSteering } from "../../shared/steering/receipt.ts";
import {
  changesNothing,
  type EditCondition,
  type Steering,
  type SteeringOfSae,
} from "../../shared/steering/steering-set.ts";
import { checkFeatureIndex, resolveSae, type AttachedSae } from "./attached-sae.ts";
import { labelsOf, NO_EDITS, type EditLabels } from "./edit-labels.ts";
import { reachOf, type EditReach, type SteeringScope } from "./edit-positions.ts";
import { resolveEdit, type ResolvedEdit } from "./edit-strength.ts";

/** One edit of the residual rows of a layer. Edits of one layer are computed from the same row and summed. */
export interface PlannedEdit<Sae> {
  readonly layer: number;
  readonly reach: EditReach;
  /** Added to every row it reaches; empty where `terms` say it all. */
  readonly vector: Float32Array;
  /** Sum of (offset + gain · activation) · direction: what set, ablate and scale come down to. */
  readonly terms: {
    readonly sae: Sae;
    readonly features: Int32Array;
    readonly offsets: Float32Array;
    readonly gains: Float32Array;
    readonly directions: Float32Array;
  } | null;
  readonly condition: (EditCondition & { readonly sae: Sae }) | null;
}

/** What the receipt says of one SAE if the hook does its work. */
export interface PlannedItem extends AppliedSteering {
  /** Places in `edits`. */
  readonly edits: readonly number[];
  readonly reach: EditReach;
  /** The row decides whether it is changed. */
  readonly dependsOnActivations: boolean;
}

/** What one request does to the residual stream. */
export interface SteeringPlan<Sae extends AttachedSae = AttachedSae> {
  readonly edits: readonly PlannedEdit<Sae>[];
  readonly applied: readonly PlannedItem[];
  readonly labels: EditLabels;
}

export const UNSTEERED = { edits: [], applied: [], labels: NO_EDITS } as const satisfies SteeringPlan;

interface ResolvedSet<Sae> extends CanonicalSaeSet {
  readonly sae: Sae;
  readonly features: readonly ResolvedEdit[];
  readonly clamped: boolean;
  readonly reach: EditReach;
}

/**
 * A request's steering against the SAEs attached, strengths in raw units and inside their bounds. Throws an ApiError
 * that names the member at fault.
 */
export function planSteering<Sae extends AttachedSae>(
  steering: Steering | null | undefined,
  attached: readonly Sae[],
  scope: SteeringScope,
  sha256Hex: Sha256Hex,
): SteeringPlan<Sae> {
  const moving = resolveSets(steering, attached, scope)
    .map((set) => ({ ...set, features: set.features.filter(({ mode, strength }) => !changesNothing(mode, strength)) }))
    .filter(({ features }) => features.length > 0);
  if (moving.length === 0) return UNSTEERED;
  const groups = groupsOf(moving);
  const hash = steeringHash(moving, sha256Hex);
  return {
    edits: groups.map(editOf),
    applied: moving.map((set) => itemOf(set, hash, groups)),
    labels: labelsOf(moving, sha256Hex),
  };
}

/** The same plan, told as a profile's. */
export function ofProfile<Sae extends AttachedSae>(
  plan: SteeringPlan<Sae>,
  profile: NonNullable<AppliedSteering["profile"]>,
): SteeringPlan<Sae> {
  return { ...plan, applied: plan.applied.map((item) => ({ ...item, profile })) };
}

/** What the hook and the cache say about an answer. */
export interface SteeringEvidence {
  /** Rows that were changed, by place in the plan's edits. */
  readonly editedRows: ArrayLike<number>;
  readonly cachedTokens: number;
  /** Positions that went through the model, the cached ones included. */
  readonly rows: number;
}

/**
 * What really happened: an edit counts where the hook changed rows, or where the answer stands on cached cells that
 * carry it. One that depends on activations counts where its rows were looked at, and its number of changed rows is told.
 */
export function appliedSteering(
  plan: Pick<SteeringPlan, "applied">,
  { editedRows, cachedTokens, rows }: SteeringEvidence,
): AppliedSteering[] {
  const applied: AppliedSteering[] = [];
  for (const { edits, reach, dependsOnActivations, ...item } of plan.applied) {
    const changed = edits.reduce((most, edit) => Math.max(most, editedRows[edit] ?? 0), 0);
    const seen = changed > 0 || reach.beginsBefore(dependsOnActivations ? rows : cachedTokens);
    if (seen) applied.push(dependsOnActivations ? { ...item, rows: changed } : item);
  }
  return applied;
}

function resolveSets<Sae extends AttachedSae>(
  steering: Steering | null | undefined,
  attached: readonly Sae[],
  scope: SteeringScope,
): ResolvedSet<Sae>[] {
  if (steering === null || steering === undefined) return [];
  const sets = Array.isArray(steering) ? steering : [steering];
  const seen = new Set<string>();
  const resolved: ResolvedSet<Sae>[] = [];
  sets.forEach((set, place) => {
    const param = Array.isArray(steering) ? `steering[${place}]` : "steering";
    // An empty set asks for an unsteered answer and may come without any SAE attached.
    if (set.features.length === 0) return;
    const one = resolveSet(set, attached, scope, param);
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

function resolveSet<Sae extends AttachedSae>(
  set: SteeringOfSae,
  attached: readonly Sae[],
  scope: SteeringScope,
  param: string,
): ResolvedSet<Sae> {
  const sae = resolveSae(attached, set.sae_id, `${param}.sae_id`);
  if (set.when) checkFeatureIndex(sae, set.when.index, `${param}.when.index`);
  const features = set.features.map((feature, place) =>
    resolveEdit(feature, sae, set.when ?? null, `${param}.features[${place}]`),
  );
  const excludesSpecialTokens = set.exclude_special_tokens ?? false;
  return {
    saeId: sae.id,
    saeDigest: sae.digest,
    layer: sae.layer,
    positions: positionsText(set.positions),
    excludesSpecialTokens,
    features,
    sae,
    clamped: features.some(({ clamped }) => clamped),
    reach: reachOf(set.positions, excludesSpecialTokens, scope, `${param}.positions`),
  };
}

/** Edits that one native edit can carry: same layer, same rows, same condition; all additive, or all of one SAE. */
interface Group<Sae> {
  readonly key: string;
  readonly reach: EditReach;
  readonly layer: number;
  /** Null for additive edits, whose SAEs are summed. */
  readonly termsOf: Sae | null;
  readonly condition: PlannedEdit<Sae>["condition"];
  readonly members: { readonly sae: Sae; readonly edit: ResolvedEdit }[];
}

function groupsOf<Sae extends AttachedSae>(sets: readonly ResolvedSet<Sae>[]): Group<Sae>[] {
  const groups = new Map<string, Group<Sae>>();
  for (const { sae, layer, reach, features } of sets.toSorted((a, b) => a.layer - b.layer)) {
    for (const edit of features) {
      const key = groupKey({ sae, layer, reach, edit });
      const group = groups.get(key) ?? {
        key,
        reach,
        layer,
        termsOf: edit.mode === "add" ? null : sae,
        condition: edit.when === null ? null : { ...edit.when, sae },
        members: [],
      };
      groups.set(key, group);
      group.members.push({ sae, edit });
    }
  }
  return [...groups.values()];
}

function groupKey({
  sae,
  layer,
  reach,
  edit,
}: Pick<ResolvedSet<AttachedSae>, "sae" | "layer" | "reach"> & {
  readonly edit: ResolvedEdit;
}): string {
  const { mode, when } = edit;
  return JSON.stringify([
    layer,
    reach.ranges,
    reach.excludedTokens.length > 0,
    mode === "add" ? null : sae.id,
    when === null ? null : [sae.id, when.index, when.op, when.value],
  ]);
}

function editOf<Sae extends AttachedSae>({ layer, reach, termsOf, condition, members }: Group<Sae>): PlannedEdit<Sae> {
  const ordered = members.toSorted((a, b) => a.edit.index - b.edit.index);
  if (termsOf === null) return { layer, reach, vector: sumOf(ordered), terms: null, condition };
  const width = termsOf.embeddingWidth;
  const directions = new Float32Array(ordered.length * width);
  ordered.forEach(({ sae, edit }, place) => directions.set(rowOf(sae, edit.index), place * width));
  return {
    layer,
    reach,
    vector: new Float32Array(0),
    terms: {
      sae: termsOf,
      features: Int32Array.from(ordered, ({ edit }) => edit.index),
      offsets: Float32Array.from(ordered, ({ edit }) => (edit.mode === "set" ? edit.strength : 0)),
      gains: Float32Array.from(ordered, ({ edit }) => (edit.mode === "scale" ? edit.strength - 1 : -1)),
      directions,
    },
    condition,
  };
}

function itemOf<Sae extends AttachedSae>(
  set: ResolvedSet<Sae>,
  hash: string,
  groups: readonly Group<Sae>[],
): PlannedItem {
  const { saeId, layer, features, clamped, positions, excludesSpecialTokens, reach, sae } = set;
  const keys = new Set(features.map((edit) => groupKey({ sae, layer, reach, edit })));
  const modes = [...new Set(features.map(({ mode }) => mode))];
  return {
    saeId,
    layer,
    features: features.length,
    hash,
    clamped,
    modes: modes.every((mode) => mode === "add") ? [] : modes,
    positions,
    excludesSpecialTokens,
    edits: groups.flatMap(({ key }, place) => (keys.has(key) ? [place] : [])),
    reach,
    dependsOnActivations: features.some(({ mode, when }) => mode !== "add" || when !== null),
  };
}

const rowOf = (sae: AttachedSae, index: number): Float32Array =>
  sae.decoderRows.subarray(index * sae.embeddingWidth, (index + 1) * sae.embeddingWidth);

/** Summed in f64 and rounded once, so that the order of features does not matter to the result's last bits. */
function sumOf(members: Group<AttachedSae>["members"]): Float32Array {
  const width = members[0]?.sae.embeddingWidth ?? 0;
  const sum = new Float64Array(width);
  for (const { sae, edit } of members) {
    const row = rowOf(sae, edit.index);
    for (let i = 0; i < width; i += 1) sum[i] = (sum[i] ?? 0) + edit.strength * (row[i] ?? 0);
  }
  return Float32Array.from(sum);
}
