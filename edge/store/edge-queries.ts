import { eq, inArray, lt, sql } from "drizzle-orm";
import {
  DEAD_EDGE_KEPT_MS,
  nameIsFree,
  placementAfter,
  type EdgeLease,
  type PlacementLease,
} from "../membership/edge-lease.ts";
import type { EdgeIdentity, EdgeMember, JoinAnswer, RenewAnswer } from "../ports/edge-store.ts";
import { databaseOver, type Connection, type Database } from "./database.ts";
import { formerOf, setAsideFormer } from "./slice-queries.ts";
import { budgetSlices, edgeLeases, edges, openRequests } from "./schema.ts";

type EdgeRow = typeof edges.$inferSelect;

const PLACEMENT = "placement";

/**
 * Leases run by the database's clock: machines may disagree about the time, and there is only one database. A server
 * and a file tell it in the same words.
 */
const DATABASE_NOW_MS = sql<number>`cast(unixepoch('subsec') * 1000 as integer)`.mapWith(Number);

export async function listEdges(database: Database): Promise<EdgeMember[]> {
  const rows = await database.select({ edge: edges, nowMs: DATABASE_NOW_MS }).from(edges);
  return rows.map(({ edge, nowMs }) => memberOf(edge, nowMs));
}

/** Runs in a transaction. */
export async function joinEdge(connection: Connection, edge: EdgeIdentity, ttlMs: number): Promise<JoinAnswer> {
  const database = databaseOver(connection);
  const nowMs = await databaseNowMs(database);
  const rows = await forgetLongDead(database, nowMs);
  const known = rows.find(({ name }) => name === edge.name);
  const lease = known === undefined ? null : leaseOf(known);
  if (lease !== null && !nameIsFree(lease, edge.home, nowMs)) {
    return { kind: "taken", freeInMs: lease.expiresAtMs - nowMs };
  }
  if (known !== undefined) await setAsideFormer(connection, edge.name);
  const others = rows.filter(({ name }) => name !== edge.name);
  const row: EdgeRow = {
    ...edge,
    joinedAt: nowMs,
    expiresAt: nowMs + ttlMs,
    // Alone, and nobody has been here lately: its limits are all its own.
    sharing: others.length > 0 ? 1 : 0,
  };
  await database.insert(edges).values(row).onConflictDoUpdate({ target: edges.name, set: row });
  return { kind: "joined", members: [...others, row].map((member) => memberOf(member, nowMs)) };
}

/** Runs in a transaction. */
export async function renewEdge(
  database: Database,
  edge: EdgeIdentity,
  term: { readonly ttlMs: number; readonly sharing: boolean },
): Promise<RenewAnswer> {
  const nowMs = await databaseNowMs(database);
  const rows = await forgetLongDead(database, nowMs);
  const known = rows.find(({ name }) => name === edge.name);
  if (known !== undefined && known.run !== edge.run) {
    return { mine: false, members: rows.map((row) => memberOf(row, nowMs)), placement: null };
  }
  const row: EdgeRow = {
    ...edge,
    joinedAt: known?.joinedAt ?? nowMs,
    expiresAt: nowMs + term.ttlMs,
    sharing: term.sharing ? 1 : 0,
  };
  await database.insert(edges).values(row).onConflictDoUpdate({ target: edges.name, set: row });
  const members = [...rows.filter(({ name }) => name !== edge.name), row];
  return {
    mine: true,
    members: members.map((member) => memberOf(member, nowMs)),
    placement: await renewPlacement(database, edge, members, nowMs),
  };
}

/** Runs in a transaction. */
export async function leaveEdge(database: Database, { name, run }: EdgeIdentity): Promise<void> {
  const [known] = await database.select().from(edges).where(eq(edges.name, name));
  if (known === undefined || known.run !== run) return;
  const [open] = await database.select().from(openRequests).where(eq(openRequests.edge, name)).limit(1);
  if (open === undefined) {
    await database.delete(budgetSlices).where(inArray(budgetSlices.edge, [name, formerOf(name)]));
    await database.delete(edges).where(eq(edges.name, name));
    return;
  }
  // Machines have not told of all its requests: the others hear of them in its stead, and their money stays held.
  const expiresAt = await databaseNowMs(database);
  await database.update(edges).set({ expiresAt }).where(eq(edges.name, name));
}

async function renewPlacement(
  database: Database,
  edge: EdgeIdentity,
  rows: readonly EdgeRow[],
  nowMs: number,
): Promise<number | null> {
  const [stored] = await database.select().from(edgeLeases).where(eq(edgeLeases.subject, PLACEMENT));
  const holder = rows.find(({ name }) => name === stored?.holder);
  const lease: PlacementLease | null = stored ?? null;
  const after = placementAfter(lease, holder === undefined ? null : leaseOf(holder), edge, nowMs);
  if (after !== lease) {
    const row = { subject: PLACEMENT, ...after };
    await database.insert(edgeLeases).values(row).onConflictDoUpdate({ target: edgeLeases.subject, set: row });
  }
  return after.holder === edge.name && after.holderRun === edge.run ? after.number : null;
}

/** The edges that are left, and with those that are gone for good goes what was kept of them. */
async function forgetLongDead(database: Database, nowMs: number): Promise<EdgeRow[]> {
  const rows = await database.select().from(edges);
  const deadline = nowMs - DEAD_EDGE_KEPT_MS;
  const gone = rows.filter(({ expiresAt }) => expiresAt < deadline);
  const names = gone.flatMap(({ name }) => [name, formerOf(name)]);
  if (gone.length > 0) await database.delete(budgetSlices).where(inArray(budgetSlices.edge, names));
  if (gone.length > 0) await database.delete(edges).where(lt(edges.expiresAt, deadline));
  return rows.filter(({ expiresAt }) => expiresAt >= deadline);
}

export async function databaseNowMs(database: Database): Promise<number> {
  const [row] = await database.select({ nowMs: DATABASE_NOW_MS }).from(sql`(select 1)`);
  if (row === undefined) throw new Error("the database does not tell the time");
  return row.nowMs;
}

function leaseOf({ name, home, run, expiresAt }: EdgeRow): EdgeLease {
  return { name, home, run, expiresAtMs: expiresAt };
}

function memberOf({ name, run, expiresAt, sharing }: EdgeRow, nowMs: number): EdgeMember {
  return { name, run, leaseLeftMs: expiresAt - nowMs, sharing: sharing === 1 };
}
