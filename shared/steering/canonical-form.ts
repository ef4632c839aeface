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

export interface CanonicalSaeSet {
  readonly saeId: string;
  /** Content digest of the SAE's tensors, so that a renamed or changed file changes the hash. */
  readonly saeDigest: string;
  readonly layer: number;
  readonly features: readonly (CanonicalFeature & { readonly mode: string; readonly unit: string })[];
  readonly positions: string;
}

/** Our own rule, for everything that v1 cannot say: several SAEs, modes, units, positions, and the file's content. */
export function canonicalFormV2(sets: readonly CanonicalSaeSet[]): string {
  const lines = ["steerage.steering-set/v2"];
  const sorted = sets.toSorted((a, b) => a.layer - b.layer || (a.saeId < b.saeId ? -1 : a.saeId > b.saeId ? 1 : 0));
  for (const set of sorted) {
    lines.push(`sae=${set.saeId}`, `digest=${set.saeDigest}`, `layer=${set.layer}`, `positions=${set.positions}`);
    const features = set.features.filter(({ strength, mode }) => strength !== 0 || mode !== "add");
    for (const { index, strength, mode, unit } of features.toSorted((a, b) => a.index - b.index)) {
      lines.push(`${index}:${mode}:${unit}:${binary64Hex(strength)}`);
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
    only.features.every(({ mode, unit }) => mode === "add" && unit === "raw");
  return sha256Hex(sayableInV1 ? canonicalFormV1(only.saeId, only.features) : canonicalFormV2(sets));
}
