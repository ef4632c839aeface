import type { InStatement, InValue, ResultSet } from "@libsql/client";
import { grantBudget, grantRate } from "../limits/slice-grants.ts";
import type { BudgetPeriod } from "../ports/limits.ts";
import type { BudgetAsk, BudgetGrant, RateAsk, RateGrant, SliceAnswer, SliceRequest } from "../ports/slice-store.ts";
import type { Connection } from "./database.ts";

/** Slices of a former process of an edge, whose name can hold no such sign. */
export const formerOf = (edge: string): string => `#${edge}`;

/** Runs in a transaction. What the edge's former process held is kept until its journal has told what became of it. */
export async function setAsideFormer(connection: Connection, edge: string): Promise<void> {
  await connection.batch([
    statement(
      "insert into budget_slices (scope, period, edge, held_nano_usd) " +
        "select scope, period, ?, held_nano_usd from budget_slices where edge = ? " +
        "on conflict (scope, period, edge) do update set held_nano_usd = held_nano_usd + excluded.held_nano_usd",
      [formerOf(edge), edge],
    ),
    statement("delete from budget_slices where edge = ?", [edge]),
  ]);
}

/**
 * Runs in a write transaction. Spelled out and sent in two batches, since every statement of its own would be a round
 * trip to a server, and requests may be waiting.
 */
export async function takeSlices(connection: Connection, request: SliceRequest): Promise<SliceAnswer> {
  const { edge, rates, budgets } = request;
  const [members, ...rest] = await connection.batch([
    "select name, run, sharing, expires_at, cast(unixepoch('subsec') * 1000 as integer) as now_ms from edges",
    ...rates.map((ask) => poolOf(ask.scope, ask.resource)),
    ...budgets.flatMap((ask) => [
      poolOf(budgetScope(ask), "money"),
      statement(
        "select coalesce(sum(held_nano_usd), 0) as nano_usd from budget_slices where scope = ? and period = ? and edge <> ?",
        [ask.scope, periodOf(ask), edge.name],
      ),
      spentOf(ask),
    ]),
  ]);
  const rows = members?.rows ?? [];
  const me = rows.find((row) => row["name"] === edge.name);
  if (me === undefined || me["run"] !== edge.run) return { kind: "lost" };
  const nowMs = Number(me["now_ms"]);
  const live = rows.filter((row) => row["name"] === edge.name || Number(row["expires_at"]) > nowMs);
  const edges = live.length;
  const silent = live.find((row) => row["name"] !== edge.name && Number(row["sharing"]) === 0);
  const asked: Asked = { edge: edge.name, nowMs, edges, mayGive: silent === undefined };
  const writes: InStatement[] = [statement("update edges set sharing = 1 where name = ? and sharing = 0", [edge.name])];
  const rateGrants = rates.map((ask, place) => giveRate(ask, rest[place], asked, writes));
  const budgetGrants = budgets.map((ask, place) => {
    const from = rates.length + 3 * place;
    return giveBudget(ask, rest.slice(from, from + 3), asked, writes);
  });
  await connection.batch(writes);
  const name = silent?.["name"];
  const waitsFor = typeof name === "string" ? name : null;
  return { kind: "granted", waitsFor, edges, rates: rateGrants, budgets: budgetGrants };
}

interface Asked {
  readonly edge: string;
  readonly nowMs: number;
  readonly edges: number;
  /** Every live edge has told what it uses. Until then only what comes back is written down. */
  readonly mayGive: boolean;
}

function giveRate(
  ask: RateAsk,
  stored: ResultSet | undefined,
  { nowMs, edges, mayGive }: Asked,
  writes: InStatement[],
): RateGrant {
  const row = stored?.rows[0];
  const pool =
    row === undefined
      ? null
      : { level: Number(row["level"]), atMs: Number(row["at"]), starvedSinceMs: Number(row["starved_at"]) };
  const { pool: after, grant } = grantRate(pool, mayGive ? ask : { ...ask, need: 0, ahead: false }, { nowMs, edges });
  writes.push(writePool(ask.scope, ask.resource, [after.level, nowMs, after.starvedSinceMs]));
  return grant;
}

function giveBudget(
  ask: BudgetAsk,
  [pool, others, spent]: readonly ResultSet[],
  { edge, nowMs, edges, mayGive }: Asked,
  writes: InStatement[],
): BudgetGrant {
  const state = {
    spentNanoUsd: integerOf(spent, "nano_usd"),
    othersNanoUsd: integerOf(others, "nano_usd"),
    starvedSinceMs: Number(pool?.rows[0]?.["starved_at"] ?? 0),
  };
  const asked = mayGive ? ask : { ...ask, needNanoUsd: ask.committedNanoUsd, ahead: false };
  const { starvedSinceMs, grant } = grantBudget(state, asked, { nowMs, edges });
  if (starvedSinceMs !== state.starvedSinceMs)
    writes.push(writePool(budgetScope(ask), "money", [0, nowMs, starvedSinceMs]));
  const key = [ask.scope, periodOf(ask), edge];
  writes.push(
    grant.heldNanoUsd === "0"
      ? statement("delete from budget_slices where scope = ? and period = ? and edge = ?", key)
      : statement(
          "insert into budget_slices (scope, period, edge, held_nano_usd) values (?, ?, ?, ?) " +
            "on conflict (scope, period, edge) do update set held_nano_usd = excluded.held_nano_usd",
          [...key, BigInt(grant.heldNanoUsd)],
        ),
  );
  return grant;
}

/** In the order of the roll-ups' key, so that only the rows of that scope are read. */
const PATH_COLUMNS = ["account", "project", "key_id"] as const;

function spentOf({ path, startMs, endMs }: BudgetAsk): InStatement {
  const conditions = [
    ...PATH_COLUMNS.slice(0, path.length).map((column) => `${column} = ?`),
    "hour >= ?",
    ...(endMs === null ? [] : ["hour < ?"]),
  ];
  return statement(
    `select coalesce(sum(cost_nano_usd), 0) as nano_usd from usage_hours where ${conditions.join(" and ")}`,
    [...path, startMs, ...(endMs === null ? [] : [endMs])],
  );
}

const poolOf = (scope: string, resource: string): InStatement =>
  statement("select level, at, starved_at from limit_pools where scope = ? and resource = ?", [scope, resource]);

const writePool = (scope: string, resource: string, values: readonly [number, number, number]): InStatement =>
  statement(
    "insert into limit_pools (scope, resource, level, at, starved_at) values (?, ?, ?, ?, ?) " +
      "on conflict (scope, resource) do update set level = excluded.level, at = excluded.at, starved_at = excluded.starved_at",
    [scope, resource, ...values],
  );

/** As it stands in the table. */
export const periodText = (period: BudgetPeriod, startMs: number): string => `${period} ${startMs}`;
const periodOf = ({ period, startMs }: BudgetAsk): string => periodText(period, startMs);
const budgetScope = (ask: BudgetAsk): string => `${ask.scope} ${periodOf(ask)}`;
const statement = (sql: string, args: InValue[]): InStatement => ({ sql, args });

function integerOf(result: ResultSet | undefined, column: string): bigint {
  const value = result?.rows[0]?.[column];
  return typeof value === "bigint" || typeof value === "number" ? BigInt(value) : 0n;
}
