import type { TimeRange, UsageBatch, UsageRow, UsageStore } from "../ports/usage-store.ts";
import { mergedUsage, requestIdsOf } from "./proof.ts";

const PAGE_ROWS = 1_000;

export interface ExportRange extends TimeRange {
  /** Rows settled later stay out; null takes all. */
  readonly settledUpToMs: number | null;
}

/**
 * Every billed row of a period in the order of `at`, those that are only in the journal included. A row that stands in
 * both is given once, the newer one.
 */
export async function* exportedRows(
  store: Pick<UsageStore, "usagePage" | "requests">,
  journal: UsageBatch,
  range: ExportRange,
): AsyncGenerator<UsageRow> {
  const merged = mergedUsage(await store.requests(requestIdsOf(journal)), journal);
  const waiting = [...merged.values()].filter((row) => isIn(row, range)).toSorted(inOrder);
  const isWanted = (row: UsageRow): boolean => range.settledUpToMs === null || row.settledAtMs <= range.settledUpToMs;
  let next = 0;
  for await (const row of storedRows(store, range)) {
    for (let early = waiting[next]; early !== undefined && inOrder(early, row) < 0; early = waiting[next]) {
      next += 1;
      if (isWanted(early)) yield early;
    }
    const journaled = waiting[next];
    if (journaled?.requestId === row.requestId) next += 1;
    // On a tie the journal's: it was laid over what the database had a moment ago.
    const newer = journaled?.requestId === row.requestId && journaled.settledAtMs >= row.settledAtMs ? journaled : row;
    if (isWanted(newer)) yield newer;
  }
  for (const row of waiting.slice(next)) if (isWanted(row)) yield row;
}

async function* storedRows(store: Pick<UsageStore, "usagePage">, range: TimeRange): AsyncGenerator<UsageRow> {
  let after: { atMs: number; requestId: string } | null = null;
  for (;;) {
    const page: readonly UsageRow[] = await store.usagePage({
      fromMs: range.fromMs,
      toMs: range.toMs,
      after,
      limit: PAGE_ROWS,
    });
    yield* page;
    const last = page.at(-1);
    if (last === undefined || page.length < PAGE_ROWS) return;
    after = { atMs: last.atMs, requestId: last.requestId };
  }
}

function isIn(row: UsageRow, range: TimeRange): boolean {
  return (range.fromMs === null || row.atMs >= range.fromMs) && (range.toMs === null || row.atMs < range.toMs);
}

function inOrder(one: UsageRow, other: UsageRow): number {
  if (one.atMs !== other.atMs) return one.atMs - other.atMs;
  if (one.requestId === other.requestId) return 0;
  return one.requestId < other.requestId ? -1 : 1;
}
