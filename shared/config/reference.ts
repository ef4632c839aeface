import { z } from "zod";

export interface ConfigRow {
  /** Dotted path; `[]` marks the entries of a list, `*` the names of a map. */
  readonly path: string;
  readonly type: string;
  /** As written in the file; empty when there is none. */
  readonly defaultText: string;
  readonly description: string;
}

type JsonSchema = z.core.JSONSchema._JSONSchema;
type ObjectSchema = Exclude<JsonSchema, boolean>;

/** Every key of a configuration schema in file order, read off the schema itself so that it cannot drift. */
export function configRows(schema: z.ZodType): ConfigRow[] {
  const rows: ConfigRow[] = [];
  walk(z.toJSONSchema(schema, { io: "input", unrepresentable: "any" }), "", rows);
  return rows;
}

function walk(schema: JsonSchema, path: string, rows: ConfigRow[]): void {
  if (typeof schema === "boolean") return;
  const inner = blockOf(schema);
  if (path !== "" && (inner.properties === undefined || schema.description !== undefined)) {
    rows.push({
      path,
      type: typeName(schema),
      defaultText: defaultText(schema.default),
      description: schema.description ?? "",
    });
  }
  walkMembers(inner, path === "" ? "" : `${path}.`, rows);
  const items = Array.isArray(inner.items) ? undefined : inner.items;
  if (typeof items === "object") walkMembers(items, `${path}[].`, rows);
  if (typeof inner.additionalProperties === "object") walkMembers(inner.additionalProperties, `${path}.*.`, rows);
}

function walkMembers(schema: ObjectSchema, prefix: string, rows: ConfigRow[]): void {
  for (const [name, member] of Object.entries(schema.properties ?? {})) walk(member, prefix + name, rows);
}

/** A block that may also be null or a scalar is described by its block. */
function blockOf(schema: ObjectSchema): ObjectSchema {
  for (const branch of schema.anyOf ?? []) {
    if (typeof branch === "object" && (branch.properties !== undefined || branch.items !== undefined)) return branch;
  }
  return schema;
}

function typeName(schema: JsonSchema): string {
  if (typeof schema === "boolean") return "any";
  const kind: unknown = schema["kind"];
  if (typeof kind === "string") return kind;
  if (schema.enum !== undefined) return schema.enum.map((value) => `\`${String(value)}\``).join(" or ");
  if (schema.const !== undefined) return `\`${String(schema.const)}\``;
  if (schema.anyOf !== undefined) {
    return [...new Set(schema.anyOf.map(typeName))].filter((name) => name !== "null").join(" or ");
  }
  if (schema.type === "array") {
    const items = Array.isArray(schema.items) ? undefined : schema.items;
    return items === undefined ? "list" : `list of ${typeName(items)}`;
  }
  if (schema.type === "object") return schema.properties === undefined ? "map" : "block";
  return Array.isArray(schema.type) ? schema.type.join(" or ") : (schema.type ?? "any");
}

function defaultText(value: unknown): string {
  if (value === undefined || typeof value === "object") return "";
  return `\`${JSON.stringify(value).replace(/^"(.+)"$/, "$1")}\``;
}

const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");

/** The body of a CONFIG.md: one table, one row a key. `environmentName` says how a key is set from outside, or null. */
export function configTable(schema: z.ZodType, environmentName: (path: string) => string | null): string {
  const lines = ["| key | type | default | environment | meaning |", "|---|---|---|---|---|"];
  for (const row of configRows(schema)) {
    const name = environmentName(row.path);
    const environment = name === null ? "" : `\`${name}\``;
    lines.push(
      `| \`${row.path}\` | ${cell(row.type)} | ${cell(row.defaultText)} | ${environment} | ${cell(row.description)} |`,
    );
  }
  return `${lines.join("\n")}\n`;
}
