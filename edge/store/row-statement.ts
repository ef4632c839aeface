import type { InStatement, InValue } from "@libsql/client";
import { getTableColumns, is, Param, Placeholder, sql } from "drizzle-orm";
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

/** Rows of one statement: enough that preparing it costs little a row, and far below any limit on values. */
const MOST_ROWS = 64;

/**
 * From a statement that inserts one row of placeholders: the statements that insert many, with as many rows in each as
 * possible, since a driver prepares every one anew. `columns` gives a row the schema's names.
 */
export function rowStatements<Row>(
  statement: { readonly sql: string; readonly params: unknown[] },
  columns: (row: Row) => Record<string, unknown>,
): (rows: readonly Row[]) => InStatement[] {
  const [, before = "", tuple = "", after = ""] = /^(.* values )(\((?:\?, )*\?\))(.*)$/s.exec(statement.sql) ?? [];
  if (tuple === "") throw new Error("this is not a statement that inserts one row of placeholders");
  const width = tuple.split("?").length - 1;
  const encoders = statement.params.slice(0, width).map(encoderOf);
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what is no placeholder is a value of the driver
  const fixed = statement.params.slice(width) as InValue[];
  return (rows) => {
    const statements: InStatement[] = [];
    for (let from = 0; from < rows.length; from += MOST_ROWS) {
      const part = rows.slice(from, from + MOST_ROWS);
      const args: InValue[] = [];
      for (const row of part) {
        const values = columns(row);
        for (const encode of encoders) args.push(encode(values));
      }
      args.push(...fixed);
      statements.push({ sql: before + Array<string>(part.length).fill(tuple).join(",") + after, args });
    }
    return statements;
  };
}

/** A column's value in the form of the driver. */
function encoderOf(param: unknown): (values: Record<string, unknown>) => InValue {
  if (!is(param, Param) || !is(param.value, Placeholder)) throw new Error("a value of the row is no placeholder");
  const { encoder } = param;
  const { name } = param.value;
  // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- the schema's encoders make values of the driver
  return (values) => encoder.mapToDriverValue(values[name]) as InValue;
}
