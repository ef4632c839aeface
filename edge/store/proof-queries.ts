import { and, asc, isNotNull, isNull, lte, sql, eq, type SQL } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";
import type { ProofRequest, ProofSnapshot, StoredRequests } from "../ports/usage-store.ts";
import type { Database } from "./database.ts";
import { attempts, hostCounters, usage, usageHours } from "./schema.ts";
import { attemptRowOf, usageRowOf, within } from "./usage-queries.ts";

/** Spelled out in the statement: as a parameter, a JavaScript number is a real, and a division by it has no rest. */
const HOUR_MS = sql.raw("3600000");

/** Runs in a read transaction: every sum is of the same instant. */
export async function proofSnapshot(database: Database, request: ProofRequest): Promise<ProofSnapshot> {
  const usageHour = sql<number>`${usage.at} / ${HOUR_MS} * ${HOUR_MS}`.mapWith(Number);
  const isSettled = and(within(usage.at, request), lte(usage.settledAt, request.settledUpToMs));
  const attemptSums = {
    rows: sql`count(*)`.mapWith(Number),
    promptTokens: sum(sql`${attempts.computedPrompt} + ${attempts.cachedPrompt}`),
    cachedTokens: sum(attempts.cachedPrompt),
    completionTokens: sum(attempts.computedCompletion),
  };
  const reported = await database
    .select({ host: attempts.backend, epoch: attempts.epoch, hourMs: attempts.endedHour, ...attemptSums })
    .from(attempts)
    .where(and(isNotNull(attempts.endedHour), isNotNull(attempts.epoch), within(attempts.endedHour, request)))
    .groupBy(attempts.backend, attempts.epoch, attempts.endedHour);
  const counters = await database
    .select()
    .from(hostCounters)
    .where(within(hostCounters.hour, request))
    .orderBy(asc(hostCounters.hour));
  const sumsOfUsage = {
    hourMs: usageHour,
    rows: sql`count(*)`.mapWith(Number),
    promptTokens: sum(usage.promptTokens),
    cachedTokens: sum(usage.cachedTokens),
    completionTokens: sum(usage.completionTokens),
    costNanoUsd: sql`sum(${usage.costNanoUsd})`.mapWith(String),
  };
  const usageSums = await database.select(sumsOfUsage).from(usage).where(isSettled).groupBy(usageHour);
  const rolledUp = await database.select(sumsOfUsage).from(usage).where(within(usage.at, request)).groupBy(usageHour);
  const rollups = await database
    .select({
      hourMs: usageHours.hour,
      rows: sum(usageHours.requests),
      promptTokens: sum(usageHours.promptTokens),
      cachedTokens: sum(usageHours.cachedTokens),
      completionTokens: sum(usageHours.completionTokens),
      costNanoUsd: sql`sum(${usageHours.costNanoUsd})`.mapWith(String),
    })
    .from(usageHours)
    .where(within(usageHours.hour, request))
    .groupBy(usageHours.hour);
  const billedAttempts = await database
    .select({ hourMs: usageHour, ...attemptSums })
    .from(attempts)
    .innerJoin(usage, eq(usage.requestId, attempts.requestId))
    .where(and(isNull(attempts.unbilledReason), isSettled))
    .groupBy(usageHour);
  const [without] = await database
    .select({ rows: sql`count(*)`.mapWith(Number) })
    .from(attempts)
    .leftJoin(usage, eq(usage.requestId, attempts.requestId))
    .where(and(isNull(attempts.unbilledReason), isNull(usage.requestId), within(attempts.endedHour, request)));
  return {
    attempts: reported.map((row) => ({ ...row, epoch: row.epoch ?? 0, hourMs: row.hourMs ?? 0 })),
    counters: counters.map(({ hour, ...row }) => ({ ...row, hourMs: hour })),
    usage: usageSums,
    billedAttempts,
    rollups,
    rolledUp,
    billedWithoutUsage: without?.rows ?? 0,
    ...(await storedRequests(database, request.requestIds)),
  };
}

/** Runs in a read transaction. */
export async function storedRequests(database: Database, requestIds: readonly string[]): Promise<StoredRequests> {
  if (requestIds.length === 0) return { usageRows: [], attemptRows: [] };
  const ids = JSON.stringify(requestIds);
  const usageRows = await database.select().from(usage).where(isAmong(usage.requestId, ids));
  const attemptRows = await database.select().from(attempts).where(isAmong(attempts.requestId, ids));
  return { usageRows: usageRows.map(usageRowOf), attemptRows: attemptRows.map(attemptRowOf) };
}

const sum = (expression: SQL | SQLiteColumn) => sql`coalesce(sum(${expression}), 0)`.mapWith(Number);

/** By a JSON list in one parameter, since a statement has a bound on parameters. */
const isAmong = (column: SQLiteColumn, idsJson: string): SQL =>
  sql`${column} in (select value from json_each(${idsJson}))`;
