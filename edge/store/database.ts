import type { InValue, ResultSet } from "@libsql/client";
import { drizzle, type SqliteRemoteDatabase } from "drizzle-orm/sqlite-proxy";

/** A libSQL client or one of its transactions: over a file, over HTTP, in a Worker. */
export interface Connection {
  execute(statement: { sql: string; args: InValue[] }): Promise<ResultSet>;
}

export type Database = SqliteRemoteDatabase;

/** Drizzle over any libSQL connection. It brings no client of its own, so every runtime can use it. */
export function databaseOver(connection: Connection): Database {
  return drizzle(async (sql, params: InValue[], method) => {
    const { rows } = await connection.execute({ sql, args: params });
    const values = rows.map((row) => Array.from({ length: row.length }, (_, column) => row[column]));
    // Drizzle wants the bare row for `get`, and undefined when there is none, which its type does not say.
    return { rows: method === "get" ? (values[0] as unknown[]) : values };
  });
}
