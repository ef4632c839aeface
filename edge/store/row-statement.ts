import type { InStatement, InValue } from "@libsql/client";
import { fillPlaceholders, getTableColumns, sql, type Placeholder } from "drizzle-orm";
import { drizzle } from "drizzle-orm/sqlite-proxy";

/** Builds statements and runs none. */
export const STATEMENTS = drizzle(() => Promise.reject(new Error("this is for building statements only")));

/** A row of placeholders, each with its column's name in the schema. */
export function placeholders<Table extends Parameters<typeof getTableColumns>[0]>(
  table: Table,
): Record<keyof ReturnType<typeof getTableColumns<Table>>, Placeholder> {
  const row: Record<string, Placeholder> = {};
  for (const name of Object.keys(getTableColumns(table))) row[name] = sql.placeholder(name);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- one member for every column, by the loop above
  return row as Record<keyof ReturnType<typeof getTableColumns<Table>>, Placeholder>;
}

/** Fills a statement of placeholders with one row; `columns` gives the row the schema's names. */
export function rowStatement<Row>(
  statement: { readonly sql: string; readonly params: unknown[] },
  columns: (row: Row) => Record<string, unknown>,
): (row: Row) => InStatement {
  return (row) => ({
    sql: statement.sql,
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the schema's encoders make values of the driver
    args: fillPlaceholders(statement.params, columns(row)) as InValue[],
  });
}
