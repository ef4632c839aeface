import { and, asc, desc, eq, getTableColumns, gt, gte, lt, or, sql, type SQL } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import type {
  AttemptRow,
  HostCounterRow,
  LateReport,
  StoredPrice,
  TimeRange,
  UsageBatch,
  UsagePageRequest,
  UsageRow,
} from "../ports/usage-store.ts";
import { applyLateReport } from "../usage/late-report.ts";
import { NOT_SETTLED } from "../usage/request-account.ts";
import { databaseOver, type Connection, type Database } from "./database.ts";
import { placeholders, rowStatements, STATEMENTS } from "./row-statement.ts";
import { attempts, hostCounters, prices, usage } from "./schema.ts";

/** Runs in a transaction. */
export async function recordUsage(connection: Connection, batch: UsageBatch): Promise<void> {
  await connection.batch([
    ...upsertUsage(batch.usage),
    ...upsertAttempts(batch.attempts),
    ...upsertCounters(batch.counters),
  ]);
  for (const late of batch.lateReports) await recordLateReport(connection, late);
}

/** Thousands of rows a second are written, so their statements are built by drizzle once and then only filled. */
const upsertUsage = rowStatements<UsageRow>(
  STATEMENTS.insert(usage)
    .values(placeholders(usage))
    .onConflictDoUpdate({
      target: usage.requestId,
      set: excluded(usage, ["requestId"]),
      setWhere: sql`excluded.settled_at >= ${usage.settledAt}`,
    })
    .toSQL(),
  ({ atMs, settledAtMs, price, ...same }) => ({ ...same, at: atMs, settledAt: settledAtMs, ...price }),
);

const upsertAttempts = rowStatements<AttemptRow>(
  STATEMENTS.insert(attempts)
    .values(placeholders(attempts))
    .onConflictDoUpdate({
      target: [attempts.requestId, attempts.attempt],
      set: excluded(attempts, ["requestId", "attempt"]),
      // What a host reported is never replaced by an edge's own count, nor a verdict by "not settled".
      setWhere: sql`(excluded.ended_hour is not null or ${attempts.endedHour} is null)
        and (coalesce(excluded.unbilled_reason, '') <> ${NOT_SETTLED} or ${attempts.unbilledReason} = ${NOT_SETTLED})`,
    })
    .toSQL(),
  ({ endedHourMs, ...same }) => ({ ...same, endedHour: endedHourMs }),
);

const upsertCounters = rowStatements<HostCounterRow>(
  STATEMENTS.insert(hostCounters)
    .values(placeholders(hostCounters))
    .onConflictDoUpdate({
      target: [hostCounters.host, hostCounters.edge, hostCounters.epoch, hostCounters.hour],
      set: excluded(hostCounters, ["host", "edge", "epoch", "hour"]),
      setWhere: sql`excluded.requests >= ${hostCounters.requests}`,
    })
    .toSQL(),
  ({ hourMs, ...same }) => ({ ...same, hour: hourMs }),
);

async function recordLateReport(connection: Connection, late: LateReport): Promise<void> {
  const database = databaseOver(connection);
  const { requestId, attempt } = late.attempt;
  const [attemptRow] = await database
    .select()
    .from(attempts)
    .where(and(eq(attempts.requestId, requestId), eq(attempts.attempt, attempt)));
  const [usageRow] = await database.select().from(usage).where(eq(usage.requestId, requestId));
  const stored = {
    attempt: attemptRow === undefined ? null : attemptRowOf(attemptRow),
    usage: usageRow === undefined ? null : usageRowOf(usageRow),
  };
  const corrected = applyLateReport(stored, late);
  await connection.batch([
    ...(corrected.attempt === null ? [] : upsertAttempts([corrected.attempt])),
    ...(corrected.usage === null ? [] : upsertUsage([corrected.usage])),
  ]);
}

export async function usagePage(database: Database, request: UsagePageRequest): Promise<UsageRow[]> {
  const { after } = request;
  const isAfter =
    after === null
      ? undefined
      : or(gt(usage.at, after.atMs), and(eq(usage.at, after.atMs), gt(usage.requestId, after.requestId)));
  const rows = await database
    .select()
    .from(usage)
    .where(and(within(usage.at, request), isAfter))
    .orderBy(asc(usage.at), asc(usage.requestId))
    .limit(request.limit);
  return rows.map(usageRowOf);
}

/** Runs in a transaction. Only the newest list is compared with, so that every change of price has its own time. */
export async function priceVersion(database: Database, list: readonly StoredPrice[], atMs: number): Promise<number> {
  const [newest] = await database
    .select({ version: prices.version })
    .from(prices)
    .orderBy(desc(prices.version))
    .limit(1);
  const wanted = list
    .map(({ model, promptPer1k, cachedPer1k, completionPer1k }) => ({
      model: model ?? "",
      promptPer1k,
      cachedPer1k,
      completionPer1k,
    }))
    .toSorted((one, other) => (one.model < other.model ? -1 : 1));
  if (newest !== undefined) {
    const known = await database
      .select({
        model: prices.model,
        promptPer1k: prices.promptPer1k,
        cachedPer1k: prices.cachedPer1k,
        completionPer1k: prices.completionPer1k,
      })
      .from(prices)
      .where(eq(prices.version, newest.version))
      .orderBy(asc(prices.model));
    if (JSON.stringify(known) === JSON.stringify(wanted)) return newest.version;
  }
  const version = (newest?.version ?? 0) + 1;
  if (wanted.length > 0)
    await database.insert(prices).values(wanted.map((price) => ({ ...price, version, since: atMs })));
  return version;
}

/** Half open, on any column of Unix milliseconds. */
export function within(column: SQLiteColumn, range: TimeRange): SQL | undefined {
  return and(
    range.fromMs === null ? undefined : gte(column, range.fromMs),
    range.toMs === null ? undefined : lt(column, range.toMs),
  );
}

export function usageRowOf(row: typeof usage.$inferSelect): UsageRow {
  const { at, settledAt, promptPer1k, cachedPer1k, completionPer1k, ...same } = row;
  return { ...same, atMs: at, settledAtMs: settledAt, price: { promptPer1k, cachedPer1k, completionPer1k } };
}

export function attemptRowOf({ endedHour, ...same }: typeof attempts.$inferSelect): AttemptRow {
  return { ...same, endedHourMs: endedHour };
}

/** Every column of a table but its key, from the row that could not be inserted. */
function excluded(table: Parameters<typeof getTableColumns>[0], key: readonly string[]): Record<string, SQL> {
  const set: Record<string, SQL> = {};
  for (const [name, column] of Object.entries(getTableColumns(table))) {
    if (!key.includes(name)) set[name] = sql.raw(`excluded."${column.name}"`);
  }
  return set;
}
