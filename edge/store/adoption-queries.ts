import type { InStatement } from "@libsql/client";
import { and, eq, inArray } from "drizzle-orm";
import { periodStartMs } from "../limits/period.ts";
import { scopeIds } from "../limits/scopes.ts";
import type { ForeignReport, OpenRequest } from "../ports/open-request-store.ts";
import type { UsageBatch } from "../ports/usage-store.ts";
import { openRequestSchema } from "../usage/journal-entry.ts";
import { adoptedRows, type AdoptedRows } from "../usage/adoption.ts";
import { reportedRow } from "../usage/request-account.ts";
import { databaseOver, type Connection, type Database } from "./database.ts";
import { databaseNowMs } from "./edge-queries.ts";
import { edges, openRequests, usage } from "./schema.ts";
import { periodText } from "./slice-queries.ts";
import { recordUsage } from "./usage-queries.ts";

const PERIODS = ["day", "month", "total"] as const;
/** Rows in one statement: the number of a statement's parameters is bounded. */
const ROWS_AT_ONCE = 100;

/** Runs in a transaction. */
export async function noteOpenRequests(
  database: Database,
  edge: string,
  open: readonly OpenRequest[],
  closed: readonly string[],
): Promise<void> {
  for (const ids of slices(closed)) {
    await database.delete(openRequests).where(and(eq(openRequests.edge, edge), inArray(openRequests.requestId, ids)));
  }
  for (const part of slices(open)) {
    const ids = part.map(({ opened }) => opened.requestId);
    await database.delete(openRequests).where(inArray(openRequests.requestId, ids));
    await database.insert(openRequests).values(
      part.map(({ opened, attempts: started, reservedNanoUsd }) => ({
        requestId: opened.requestId,
        edge,
        opened: JSON.stringify(opened),
        attempts: JSON.stringify(started),
        reservedNanoUsd,
      })),
    );
  }
}

export async function openRequestIds(database: Database, edge: string): Promise<string[]> {
  const rows = await database
    .select({ requestId: openRequests.requestId })
    .from(openRequests)
    .where(eq(openRequests.edge, edge));
  return rows.map(({ requestId }) => requestId);
}

/** Runs in a transaction, in which it is sure that the edges are dead: one that starts again takes its lease first. */
export async function adopt(
  connection: Connection,
  { host, ended, counters, atMs }: ForeignReport,
): Promise<{ request_id: string; attempt: number }[]> {
  const database = databaseOver(connection);
  const dead = new Set((await deadEdges(database)).map(({ name }) => name));
  const theirs = ended.filter(({ edge }) => dead.has(edge));
  const open = await openOf(
    database,
    theirs.map((entry) => entry.request_id),
  );
  const settled: Settled[] = [];
  const late: UsageBatch["lateReports"][number][] = [];
  const acknowledged: { request_id: string; attempt: number }[] = [];
  for (const entry of theirs) {
    const { request_id, attempt } = entry;
    const row = open.get(request_id);
    // A host says nothing about another host's attempts.
    const isForeign = row?.attempts.some((one) => one.attempt === attempt && one.backend !== host) ?? false;
    const rows =
      row === undefined || isForeign ? null : adoptedRows(row, { host, ended: entry }, { atMs, withoutReport: false });
    if (rows !== null) {
      open.delete(request_id);
      settled.push({ rows, edge: entry.edge, reservedNanoUsd: row?.reservedNanoUsd ?? "0" });
      acknowledged.push({ request_id, attempt });
      continue;
    }
    if (isForeign) continue;
    late.push({ attempt: reportedRow({ host, ended: entry, atMs }, null), reportedAtMs: atMs });
    // What is not in the database is in the journal of its edge alone, which must hear of it when it comes back.
    if (row !== undefined || (await isSettled(database, request_id))) acknowledged.push({ request_id, attempt });
  }
  await settleRows(connection, settled);
  await recordUsage(connection, {
    usage: [],
    attempts: [],
    lateReports: late,
    counters: counters
      .filter(({ edge }) => dead.has(edge))
      .map((counter) => ({
        host,
        edge: counter.edge,
        epoch: counter.epoch,
        hourMs: counter.hour,
        requests: counter.requests,
        computedPrompt: counter.computed_prompt,
        cachedPrompt: counter.cached_prompt,
        computedCompletion: counter.computed_completion,
      })),
  });
  return acknowledged;
}

/** Runs in a transaction. */
export async function settleAbandoned(connection: Connection, waitMs: number, atMs: number): Promise<number> {
  const database = databaseOver(connection);
  const settled: Settled[] = [];
  for (const { name, deadForMs } of await deadEdges(database)) {
    const rows = await database.select().from(openRequests).where(eq(openRequests.edge, name));
    for (const row of rows) {
      const adopted = adoptedRows(openRequestOf(row), null, { atMs, withoutReport: deadForMs >= waitMs });
      if (adopted !== null) settled.push({ rows: adopted, edge: name, reservedNanoUsd: row.reservedNanoUsd });
    }
  }
  await settleRows(connection, settled);
  return settled.length;
}

interface Settled {
  readonly rows: AdoptedRows;
  readonly edge: string;
  readonly reservedNanoUsd: string;
}

async function settleRows(connection: Connection, settled: readonly Settled[]): Promise<void> {
  if (settled.length === 0) return;
  await recordUsage(connection, {
    usage: settled.map(({ rows }) => rows.usage),
    attempts: settled.flatMap(({ rows }) => rows.attempts),
    counters: [],
    lateReports: [],
  });
  const releases = settled.flatMap(releaseReserved);
  if (releases.length > 0) await connection.batch(releases);
  const ids = settled.map(({ rows }) => rows.usage.requestId);
  for (const part of slices(ids)) {
    await databaseOver(connection).delete(openRequests).where(inArray(openRequests.requestId, part));
  }
}

/** What the dead edge held for a request is spent by now, or free. */
function releaseReserved({ rows, edge, reservedNanoUsd }: Settled): InStatement[] {
  if (reservedNanoUsd === "0") return [];
  const { usage: row } = rows;
  return scopeIds(row).flatMap((scope) =>
    PERIODS.map((period) => ({
      sql:
        "update budget_slices set held_nano_usd = max(0, held_nano_usd - ?) " +
        "where scope = ? and period = ? and edge = ?",
      args: [BigInt(reservedNanoUsd), scope, periodText(period, periodStartMs(period, row.atMs)), edge],
    })),
  );
}

async function deadEdges(database: Database): Promise<{ name: string; deadForMs: number }[]> {
  const nowMs = await databaseNowMs(database);
  const rows = await database.select().from(edges);
  return rows
    .filter(({ expiresAt }) => expiresAt <= nowMs)
    .map(({ name, expiresAt }) => ({ name, deadForMs: nowMs - expiresAt }));
}

async function openOf(database: Database, requestIds: readonly string[]): Promise<Map<string, OpenRequest>> {
  const found = new Map<string, OpenRequest>();
  for (const ids of slices([...new Set(requestIds)])) {
    const rows = await database.select().from(openRequests).where(inArray(openRequests.requestId, ids));
    for (const row of rows) found.set(row.requestId, openRequestOf(row));
  }
  return found;
}

function openRequestOf(row: typeof openRequests.$inferSelect): OpenRequest {
  const { opened, attempts: started } = openRequestSchema.parse({
    opened: JSON.parse(row.opened),
    attempts: JSON.parse(row.attempts),
  });
  return { opened, attempts: started, reservedNanoUsd: row.reservedNanoUsd };
}

async function isSettled(database: Database, requestId: string): Promise<boolean> {
  const rows = await database.select({ id: usage.requestId }).from(usage).where(eq(usage.requestId, requestId));
  return rows.length > 0;
}

function slices<Item>(items: readonly Item[]): Item[][] {
  const parts: Item[][] = [];
  for (let from = 0; from < items.length; from += ROWS_AT_ONCE) parts.push(items.slice(from, from + ROWS_AT_ONCE));
  return parts;
}
