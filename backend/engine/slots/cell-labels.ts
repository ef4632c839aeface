import type { EditLabels } from "../../sae/edit-labels.ts";

/**
 * What the cells of one sequence hold. An edit changes keys and values of later layers, so a cell is told by its token
 * and by the edits that were applied there.
 */
export interface CellLabels extends EditLabels {
  /** Prefixes are shared only among requests with the same salt (one per project). */
  readonly salt: string;
  /** Token of the cell at each position. */
  readonly tokens: Int32Array;
}

export const NO_CELLS: CellLabels = { salt: "", editDigest: "", tokens: new Int32Array(0) };

/** How many leading cells of `held` may serve `wanted`. */
export function commonCells(held: CellLabels, wanted: CellLabels): number {
  if (held.salt !== wanted.salt) return 0;
  const sameEdits = held.editDigest === wanted.editDigest;
  const limit = Math.min(held.tokens.length, wanted.tokens.length);
  let count = 0;
  while (count < limit) {
    const token = held.tokens[count] ?? -1;
    if (token !== wanted.tokens[count]) break;
    if (!sameEdits && editsAt(held, count, token) !== editsAt(wanted, count, token)) break;
    count += 1;
  }
  return count;
}

const editsAt = ({ editDigest, editAt }: CellLabels, position: number, token: number): string =>
  editAt === undefined ? editDigest : editAt(position, token);
