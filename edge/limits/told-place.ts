/**
 * How far a ledger has told budgets what to add. Where the two live apart a sum of the ledger's rows and what it tells
 * cross each other, so both name their place.
 */
export interface ToldPlace {
  /** When the ledger began to count, Unix milliseconds: a later one begins anew. */
  readonly run: number;
  readonly count: number;
}

/** Whether what was told at `told` was in a sum that was read at `read`. */
export function isIncluded(told: ToldPlace, read: ToldPlace): boolean {
  return told.run < read.run || (told.run === read.run && told.count <= read.count);
}
