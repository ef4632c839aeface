/**
 * What the cells of one sequence hold. An edit changes keys and values of later layers, so a cell is told by its token
 * and by the edits that were applied there. Edits of this release cover all positions, so one digest stands for all
 * cells of a sequence; it is empty for unsteered ones.
 */
export interface CellLabels {
  /** Prefixes are shared only among requests with the same salt (one per project). */
  readonly salt: string;
  readonly editDigest: string;
  /** Token of the cell at each position. */
  readonly tokens: Int32Array;
}

export const NO_CELLS: CellLabels = { salt: "", editDigest: "", tokens: new Int32Array(0) };

/** How many leading cells of `held` may serve `wanted`. */
export function commonCells(held: CellLabels, wanted: CellLabels): number {
  if (held.salt !== wanted.salt || held.editDigest !== wanted.editDigest) return 0;
  const limit = Math.min(held.tokens.length, wanted.tokens.length);
  let count = 0;
  while (count < limit && held.tokens[count] === wanted.tokens[count]) count += 1;
  return count;
}
