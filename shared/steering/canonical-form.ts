import { changesNothing, type EditCondition, type EditMode, type StrengthUnit } from "./steering-set.ts";

/** SHA-256 of UTF-8 text as 64 lower-case hex digits. Injected: this room has no cryptography of its own. */
export type Sha256Hex = (text: string) => string;

export interface CanonicalFeature {
  readonly index: number;
  /** After the clamp. */
  readonly strength: number;
}

/** The sixteen hex digits of a number's big-endian binary64 form. */
export function binary64Hex(value: number): string {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value, false);
  return view.getBigUint64(0, false).toString(16).padStart(16, "0");
}

/** Zeros change nothing and drop out, -0 too; the rest stands by ascending index. */
function ordered(features: readonly CanonicalFeature[]): CanonicalFeature[] {
  return features.filter(({ strength }) => strength !== 0).toSorted((a, b) => a.index - b.index);
}

/**
 * miLLM's rule for one SAE, additive, raw, all positions: tag, SAE id, then `index:binary64` per feature, each line
 * ended by LF. Source: miLLM PRD 028, test vectors TV-1 to TV-4.
 */
export function canonicalFormV1(saeId: string, features: readonly CanonicalFeature[]): string {
  const lines = ["millm.steering-set/v1", `sae=${saeId}`];
  for (const { index, strength } of ordered(features)) lines.push(`${index}:${binary64Hex(strength)}`);
  return lines.map((line) => `${line}\n`).join("");
}

export interface CanonicalEdit extends CanonicalFeature {
  readonly mode: EditMode;
  /** As the caller stated it; `strength` is in raw units whatever stands here. */
  readonly unit: StrengthUnit;
  readonly when: EditCondition | null;
}

export interface CanonicalSaeSet {
  readonly saeId: string;
  /** Content digest of the SAE's tensors, so that a renamed or changed file changes the hash. */
  readonly saeDigest: string;
  readonly layer: number;
  readonly features: readonly CanonicalEdit[];
  /** `all`, `prompt`, `completion`, or ascending ranges such as `3-7,9-12`. */
  readonly positions: string;
  readonly excludesSpecialTokens: boolean;
}

/** The order of receipts and hashes: by layer, then by id. */
export function byLayerThenId(
  a: { readonly layer: number; readonly saeId: string },
  b: { readonly layer: number; readonly saeId: string },
): number {
  return a.layer - b.layer || (a.saeId < b.saeId ? -1 : a.saeId > b.saeId ? 1 : 0);
}

/**
 * Our own rule, for everything that v1 cannot say: several SAEs, modes, units, positions, conditions, and the file's
 * content. A line per feature: `index:mode:unit:binary64`, and with a condition `:when:index:op:binary64`.
 */
export function canonicalFormV2(sets: readonly CanonicalSaeSet[]): string {
  const lines = ["steerage.steering-set/v2"];
  for (const set of sets.toSorted(byLayerThenId)) {
    lines.push(`sae=${set.saeId}`, `digest=${set.saeDigest}`, `layer=${set.layer}`, `positions=${set.positions}`);
    if (set.excludesSpecialTokens) lines.push("special_tokens=excluded");
    const features = set.features.filter(({ strength, mode }) => !changesNothing(mode, strength));
    for (const { index, strength, mode, unit, when } of features.toSorted((a, b) => a.index - b.index)) {
      const condition = when === null ? "" : `:when:${when.index}:${when.op}:${binary64Hex(when.value)}`;
      lines.push(`${index}:${mode}:${unit}:${binary64Hex(strength)}${condition}`);
    }
  }
  return lines.map((line) => `${line}\n`).join("");
}

/** The hash that stands in receipts and in the ledger: v1 where v1 can say it, else v2. */
export function steeringHash(sets: readonly CanonicalSaeSet[], sha256Hex: Sha256Hex): string {
  const only = sets.length === 1 ? sets[0] : undefined;
  const sayableInV1 =
    only !== undefined &&
    only.positions === "all" &&
    !only.excludesSpecialTokens &&
    only.features.every(({ mode, unit, when }) => mode === "add" && unit === "raw" && when === null);
  return sha256Hex(sayableInV1 ? canonicalFormV1(only.saeId, only.features) : canonicalFormV2(sets));
}
