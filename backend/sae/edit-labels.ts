import { canonicalFormV2, type CanonicalSaeSet, type Sha256Hex } from "../../shared/steering/canonical-form.ts";
import type { EditReach } from "./edit-positions.ts";

/**
 * What the cells of a steered request carry. Cells may be shared where token and edits agree position by position, so
 * each position has the digest of the edits that reach it; of a conditional edit too, since the row decides it.
 */
export interface EditLabels {
  /** Digest of the whole plan: where it is equal, every position is. It is also every position's without `editAt`. */
  readonly editDigest: string;
  /** Digest of the edits at a position that holds this token, empty where none reaches it. */
  readonly editAt?: (position: number, token: number) => string;
}

export const NO_EDITS: EditLabels = { editDigest: "" };

type LabelledSet = CanonicalSaeSet & { readonly reach: EditReach };

/** SAE content, layer, features and conditions count; positions only decide where. */
export function labelsOf(given: readonly LabelledSet[], sha256Hex: Sha256Hex): EditLabels {
  if (given.length === 0) return NO_EDITS;
  // Labels outlive their request by as long as the cells do, and must not keep an SAE's rows in memory.
  const sets = given.map(bare);
  const digestOf = (active: readonly LabelledSet[]) =>
    active.length === 0
      ? ""
      : sha256Hex(canonicalFormV2(active.map((set) => ({ ...set, positions: "all", excludesSpecialTokens: false }))));
  if (sets.every(({ reach }) => reach.isEverywhere)) return { editDigest: digestOf(sets) };

  const known = new Map<number, string>();
  const places = sets.map(({ reach }) => [reach.ranges, [...reach.excludedTokens]]);
  return {
    editDigest: sha256Hex(`${canonicalFormV2(sets)}${JSON.stringify(places)}`),
    editAt: (position, token) => {
      const active = sets.map(({ reach }) => reach.includes(position, token));
      const mask = active.reduce((bits, one, place) => (one ? bits | (1 << place) : bits), 0);
      let digest = known.get(mask);
      if (digest === undefined) {
        digest = digestOf(sets.filter((_, place) => active[place]));
        known.set(mask, digest);
      }
      return digest;
    },
  };
}

function bare({
  saeId,
  saeDigest,
  layer,
  features,
  positions,
  excludesSpecialTokens,
  reach,
}: LabelledSet): LabelledSet {
  return { saeId, saeDigest, layer, features, positions, excludesSpecialTokens, reach };
}
