import type { InStatement, InValue, ResultSet } from "@libsql/client";
import { drizzle, type SqliteRemoteDatabase } from "drizzle-orm/sqlite-proxy";

/** A transaction of a libSQL client, or the client itself: over a file, over HTTP, in a Worker. */
export interface Connection {
  execute(statement: { sql: string; args: InValue[] }): Promise<ResultSet>;
  /** Many statements in one round trip. */
  batch(statements: InStatement[]): Promise<ResultSet[]>;
}

export type Database = SqliteRemoteDatabase;

/** Drizzle over any libSQL connection. It brings no client of its own, so every runtime can use it. */
export function databaseOver(connection: Connection): Database {
  return drizzle(async (sql, params: InValue[], method) => {
    const { rows } = await connection.execute({ sql, args: params });
    if (method === "get") throw new Error("queries here read lists, since a missing row has no form in this driver");
    return { rows: rows.map((row) => Array.from({ length: row.length }, (_, column) => row[column])) };
  });
}
