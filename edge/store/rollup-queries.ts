import { asc, eq, sql, type SQL } from "drizzle-orm";
import type { SpentByKey, SpentRequest, TimeRange, UsageHour } from "../ports/usage-store.ts";
import type { Database } from "./database.ts";
import { usage, usageHours } from "./schema.ts";
import { within } from "./usage-queries.ts";

/** Spelled out in the statement: as a parameter, a JavaScript number is a real, and a division by it has no rest. */
const HOUR_MS = sql.raw("3600000");

/** By roll-ups: as many rows as a key has hours and models, however many requests it made. */
export async function spent(database: Database, request: SpentRequest): Promise<SpentByKey[]> {
  return database
    .select({
      account: usageHours.account,
      project: usageHours.project,
      keyId: usageHours.keyId,
      totalNanoUsd: sql`sum(${usageHours.costNanoUsd})`.mapWith(String),
      monthNanoUsd: costSince(request.monthStartMs),
      dayNanoUsd: costSince(request.dayStartMs),
    })
    .from(usageHours)
    .where(request.account === null ? undefined : eq(usageHours.account, request.account))
    .groupBy(usageHours.account, usageHours.project, usageHours.keyId);
}

const costSince = (atMs: number): SQL<string> =>
  sql`coalesce(sum(case when ${usageHours.hour} >= ${atMs} then ${usageHours.costNanoUsd} end), 0)`.mapWith(String);

export async function usageHoursIn(database: Database, range: TimeRange): Promise<UsageHour[]> {
  const rows = await database
    .select()
    .from(usageHours)
    .where(within(usageHours.hour, range))
    .orderBy(asc(usageHours.hour), asc(usageHours.account), asc(usageHours.project), asc(usageHours.keyId));
  return rows.map(({ hour, requests, ...same }) => ({ ...same, hourMs: hour, rows: requests }));
}

/** Runs in a write transaction. Counts the roll-ups that differ from their rows, then derives all of them again. */
export async function rollUp(database: Database, range: TimeRange): Promise<number> {
  const derived = await database
    .select({
      account: usage.account,
      project: usage.project,
      keyId: usage.keyId,
      model: usage.model,
      hourMs: sql<number>`${usage.at} / ${HOUR_MS} * ${HOUR_MS}`.mapWith(Number),
      rows: sql`count(*)`.mapWith(Number),
      promptTokens: sql`sum(${usage.promptTokens})`.mapWith(Number),
      cachedTokens: sql`sum(${usage.cachedTokens})`.mapWith(Number),
      completionTokens: sql`sum(${usage.completionTokens})`.mapWith(Number),
      costNanoUsd: sql`sum(${usage.costNanoUsd})`.mapWith(String),
    })
    .from(usage)
    .where(within(usage.at, range))
    .groupBy(usage.account, usage.project, usage.keyId, usage.model, sql`5`);
  const right = new Map(derived.map((row) => [keyOf(row), row]));
  const stored = (await usageHoursIn(database, range)).filter(({ rows }) => rows !== 0);
  const wrong = new Set(right.keys());
  for (const row of stored) {
    if (isSame(right.get(keyOf(row)), row)) wrong.delete(keyOf(row));
    else wrong.add(keyOf(row));
  }
  if (wrong.size === 0) return 0;
  await database.delete(usageHours).where(within(usageHours.hour, range));
  await database.run(sql`
    insert into ${usageHours}
      (account, project, key_id, hour, model, requests, prompt_tokens, cached_tokens, completion_tokens, cost_nano_usd)
    select account, project, key_id, at / ${HOUR_MS} * ${HOUR_MS}, model, count(*), sum(prompt_tokens),
      sum(cached_tokens), sum(completion_tokens), sum(cost_nano_usd)
    from ${usage} where ${within(usage.at, range) ?? sql`true`} group by 1, 2, 3, 4, 5`);
  return wrong.size;
}

const keyOf = ({ account, project, keyId, model, hourMs }: UsageHour): string =>
  JSON.stringify([hourMs, account, project, keyId, model]);

function isSame(one: UsageHour | undefined, other: UsageHour): boolean {
  return (
    one !== undefined &&
    one.rows === other.rows &&
    one.promptTokens === other.promptTokens &&
    one.cachedTokens === other.cachedTokens &&
    one.completionTokens === other.completionTokens &&
    one.costNanoUsd === other.costNanoUsd
  );
}
