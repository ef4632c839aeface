import type {
  AttemptRow,
  HostCounterRow,
  ProofRequest,
  ProofSnapshot,
  StoredRequests,
  TokenSums,
  UsageBatch,
  UsageRow,
  UsageStore,
} from "../ports/usage-store.ts";
import { applyLateReport } from "./late-report.ts";
import { hourOf } from "./request-account.ts";

/**
 * What is proven equal: attempts and the hosts' counters; usage and billed attempts; usage and the export's lines; the
 * hourly roll-ups and the rows that they are derived from.
 */
export type ProofSum = "attempts = host counters" | "usage = billed attempts" | "usage = export" | "roll-ups = usage";

export interface ProofDifference {
  readonly sum: ProofSum;
  readonly hourMs: number;
  /** Host and epoch for the first sum; empty otherwise. */
  readonly where: string;
  readonly column: string;
  readonly left: bigint;
  readonly right: bigint;
}

interface Sums {
  rows: bigint;
  promptTokens: bigint;
  cachedTokens: bigint;
  completionTokens: bigint;
  costNanoUsd: bigint;
}
type SumsByKey = Map<string, Sums>;

/** One side each, by hour (and host and epoch), the journal's knowledge laid over what the database has. */
export interface ProofSides {
  readonly attempts: SumsByKey;
  readonly counters: SumsByKey;
  readonly usage: SumsByKey;
  readonly billedAttempts: SumsByKey;
  /** The database's own two sides: journals have no roll-ups. */
  readonly rollups: SumsByKey;
  readonly rolledUp: SumsByKey;
}

export type ProofRange = Omit<ProofRequest, "requestIds">;

/** The requests of which a journal may know more than the database. */
export function requestIdsOf(journal: UsageBatch): string[] {
  return [
    ...new Set([
      ...journal.usage.map((row) => row.requestId),
      ...journal.attempts.map((row) => row.requestId),
      ...journal.lateReports.map((late) => late.attempt.requestId),
    ]),
  ];
}

/** Lays a journal's rows over a snapshot of the database. Rows that stand in both count once, the newer one. */
export function proofSides(snapshot: ProofSnapshot, journal: UsageBatch, range: ProofRange): ProofSides {
  const sides: ProofSides = {
    attempts: new Map(),
    counters: new Map(),
    usage: new Map(),
    billedAttempts: new Map(),
    rollups: new Map(),
    rolledUp: new Map(),
  };
  for (const row of snapshot.attempts) add(sides.attempts, hostKey(row.host, row.epoch, row.hourMs), row, 1n);
  for (const row of snapshot.usage) add(sides.usage, String(row.hourMs), row, 1n);
  for (const row of snapshot.rollups) add(sides.rollups, String(row.hourMs), row, 1n);
  for (const row of snapshot.rolledUp) add(sides.rolledUp, String(row.hourMs), row, 1n);
  for (const row of snapshot.billedAttempts) add(sides.billedAttempts, String(row.hourMs), row, 1n);

  const storedUsage = new Map(snapshot.usageRows.map((row) => [row.requestId, row]));
  const storedAttempts = groupByRequest(snapshot.attemptRows);
  const merged = mergeJournal(snapshot, journal);
  for (const requestId of requestIdsOf(journal)) {
    const stored = { usage: storedUsage.get(requestId) ?? null, attempts: storedAttempts.get(requestId) ?? [] };
    const now = {
      usage: merged.usage.get(requestId) ?? null,
      attempts: [...(merged.attempts.get(requestId)?.values() ?? [])],
    };
    count(sides, stored, -1n, range);
    count(sides, now, 1n, range);
  }

  const counters = new Map<string, HostCounterRow>();
  for (const row of [...snapshot.counters, ...journal.counters]) {
    const key = `${row.edge}/${hostKey(row.host, row.epoch, row.hourMs)}`;
    if (inRange(row.hourMs, range) && row.requests >= (counters.get(key)?.requests ?? 0)) counters.set(key, row);
  }
  for (const row of counters.values()) {
    const sums = {
      rows: row.requests,
      promptTokens: row.computedPrompt + row.cachedPrompt,
      cachedTokens: row.cachedPrompt,
      completionTokens: row.computedCompletion,
    };
    add(sides.counters, hostKey(row.host, row.epoch, row.hourMs), sums, 1n);
  }
  return sides;
}

export function differencesOf(sides: ProofSides): ProofDifference[] {
  return [
    ...compare("attempts = host counters", sides.attempts, sides.counters, false),
    ...compare("usage = billed attempts", sides.usage, sides.billedAttempts, false),
    ...compare("roll-ups = usage", sides.rollups, sides.rolledUp, true),
  ];
}

/** The export's lines against the usage side; both by the hour of `at`. */
export function exportDifferences(sides: ProofSides, lines: SumsByKey): ProofDifference[] {
  return compare("usage = export", sides.usage, lines, true);
}

/** Adds one exported row to the sums of its hour. */
export function addExported(lines: SumsByKey, row: UsageRow): void {
  add(lines, String(hourOf(row.atMs)), sumsOfUsage(row), 1n);
}

/** The tokens by which the sums of a store and of what is not in it yet differ: 0 when the ledger is right. */
export async function ledgerDifference(store: UsageStore, journal: UsageBatch, range: ProofRange): Promise<number> {
  const snapshot = await store.proofSnapshot({ ...range, requestIds: requestIdsOf(journal) });
  let total = snapshot.billedWithoutUsage;
  for (const { left, right } of differencesOf(proofSides(snapshot, journal, range))) {
    total += Math.abs(Number(left - right));
  }
  return total;
}

function mergeJournal(
  snapshot: StoredRequests,
  journal: UsageBatch,
): { usage: Map<string, UsageRow>; attempts: Map<string, Map<number, AttemptRow>> } {
  const usage = new Map(snapshot.usageRows.map((row) => [row.requestId, row]));
  const attempts = new Map<string, Map<number, AttemptRow>>();
  const put = (row: AttemptRow): void => {
    const rows = attempts.get(row.requestId) ?? new Map<number, AttemptRow>();
    attempts.set(row.requestId, rows.set(row.attempt, row));
  };
  for (const row of snapshot.attemptRows) put(row);
  for (const row of journal.usage) {
    const stored = usage.get(row.requestId);
    if (stored === undefined || row.settledAtMs >= stored.settledAtMs) usage.set(row.requestId, row);
  }
  for (const row of journal.attempts) {
    const stored = attempts.get(row.requestId)?.get(row.attempt);
    if (row.endedHourMs !== null || stored === undefined || stored.endedHourMs === null) put(row);
  }
  for (const late of journal.lateReports) {
    const { requestId, attempt } = late.attempt;
    const stored = { attempt: attempts.get(requestId)?.get(attempt) ?? null, usage: usage.get(requestId) ?? null };
    const corrected = applyLateReport(stored, late);
    if (corrected.attempt !== null) put(corrected.attempt);
    if (corrected.usage !== null) usage.set(requestId, corrected.usage);
  }
  return { usage, attempts };
}

/** The journal's rows as they are to be exported in the place of those in the database. */
export function mergedUsage(stored: StoredRequests, journal: UsageBatch): Map<string, UsageRow> {
  return mergeJournal(stored, journal).usage;
}

function count(
  sides: ProofSides,
  { usage, attempts }: { readonly usage: UsageRow | null; readonly attempts: readonly AttemptRow[] },
  sign: 1n | -1n,
  range: ProofRange,
): void {
  for (const row of attempts) {
    if (row.endedHourMs === null || row.epoch === null || !inRange(row.endedHourMs, range)) continue;
    add(sides.attempts, hostKey(row.backend, row.epoch, row.endedHourMs), sumsOfAttempt(row), sign);
  }
  if (usage === null || !inRange(usage.atMs, range) || usage.settledAtMs > range.settledUpToMs) return;
  const hour = String(hourOf(usage.atMs));
  add(sides.usage, hour, sumsOfUsage(usage), sign);
  for (const row of attempts) {
    if (row.unbilledReason === null) add(sides.billedAttempts, hour, sumsOfAttempt(row), sign);
  }
}

function compare(sum: ProofSum, left: SumsByKey, right: SumsByKey, withCost: boolean): ProofDifference[] {
  const differences: ProofDifference[] = [];
  const columns: (keyof Sums)[] = ["promptTokens", "cachedTokens", "completionTokens"];
  // A request that reached no machine has a row of usage and no attempt, so rows are not compared there.
  if (sum !== "usage = billed attempts") columns.push("rows");
  if (withCost) columns.push("costNanoUsd");
  for (const key of [...new Set([...left.keys(), ...right.keys()])].toSorted()) {
    for (const column of columns) {
      const [one, other] = [left.get(key)?.[column] ?? 0n, right.get(key)?.[column] ?? 0n];
      if (one === other) continue;
      const [hour = "0", ...where] = key.split("|");
      differences.push({ sum, hourMs: Number(hour), where: where.join(" "), column, left: one, right: other });
    }
  }
  return differences;
}

function add(sides: SumsByKey, key: string, row: TokenSums & { readonly costNanoUsd?: string }, sign: 1n | -1n): void {
  const sums = sides.get(key) ?? {
    rows: 0n,
    promptTokens: 0n,
    cachedTokens: 0n,
    completionTokens: 0n,
    costNanoUsd: 0n,
  };
  sums.rows += sign * BigInt(row.rows);
  sums.promptTokens += sign * BigInt(row.promptTokens);
  sums.cachedTokens += sign * BigInt(row.cachedTokens);
  sums.completionTokens += sign * BigInt(row.completionTokens);
  sums.costNanoUsd += sign * BigInt(row.costNanoUsd ?? 0);
  sides.set(key, sums);
}

function groupByRequest(rows: readonly AttemptRow[]): Map<string, AttemptRow[]> {
  const groups = new Map<string, AttemptRow[]>();
  for (const row of rows) {
    const group = groups.get(row.requestId);
    if (group === undefined) groups.set(row.requestId, [row]);
    else group.push(row);
  }
  return groups;
}

const sumsOfUsage = (row: UsageRow): TokenSums & { readonly costNanoUsd: string } => ({ ...row, rows: 1 });
const sumsOfAttempt = (row: AttemptRow): TokenSums => ({
  rows: 1,
  promptTokens: row.computedPrompt + row.cachedPrompt,
  cachedTokens: row.cachedPrompt,
  completionTokens: row.computedCompletion,
});
const hostKey = (host: string, epoch: number, hourMs: number): string => `${hourMs}|host ${host}|epoch ${epoch}`;
const inRange = (atMs: number, range: ProofRange): boolean =>
  (range.fromMs === null || atMs >= range.fromMs) && (range.toMs === null || atMs < range.toMs);
