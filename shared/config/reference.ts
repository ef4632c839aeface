import { z } from "zod";

export interface ConfigRow {
  /** Dotted path; `[]` marks the entries of a list, `*` the names of a map. */
  readonly path: string;
  readonly type: string;
  /** As written in the file; empty when there is none. */
  readonly defaultText: string;
  readonly description: string;
}

interface JsonSchema {
  readonly type?: string | readonly string[];
  readonly kind?: string;
  readonly description?: string;
  readonly default?: unknown;
  readonly enum?: readonly unknown[];
  readonly const?: unknown;
  readonly anyOf?: readonly JsonSchema[];
  readonly properties?: Readonly<Record<string, JsonSchema>>;
  readonly items?: JsonSchema | boolean;
  readonly additionalProperties?: JsonSchema | boolean;
}

/** Every key of a configuration schema in file order, read off the schema itself so that it cannot drift. */
export function configRows(schema: z.ZodType): ConfigRow[] {
  const rows: ConfigRow[] = [];
  const root: unknown = z.toJSONSchema(schema, { io: "input", unrepresentable: "any" });
  walk(root as JsonSchema, "", rows);
  return rows;
}

function walk(schema: JsonSchema, path: string, rows: ConfigRow[]): void {
  const inner = schema.anyOf?.find((branch) => branch.properties !== undefined || branch.items !== undefined) ?? schema;
  if (path !== "" && (inner.properties === undefined || schema.description !== undefined)) {
    rows.push({
      path,
      type: typeName(schema),
      defaultText: defaultText(schema),
      description: schema.description ?? "",
    });
  }
  for (const [name, member] of Object.entries(inner.properties ?? {}))
    walk(member, path === "" ? name : `${path}.${name}`, rows);
  if (typeof inner.items === "object" && inner.items.properties !== undefined)
    walkMembers(inner.items, `${path}[]`, rows);
  if (typeof inner.additionalProperties === "object" && inner.additionalProperties.properties !== undefined) {
    walkMembers(inner.additionalProperties, `${path}.*`, rows);
  }
}

function walkMembers(schema: JsonSchema, path: string, rows: ConfigRow[]): void {
  for (const [name, member] of Object.entries(schema.properties ?? {})) walk(member, `${path}.${name}`, rows);
}

function typeName(schema: JsonSchema): string {
  if (schema.kind !== undefined) return schema.kind;
  if (schema.enum !== undefined) return schema.enum.map((value) => `\`${String(value)}\``).join(" or ");
  if (schema.const !== undefined) return `\`${String(schema.const)}\``;
  if (schema.anyOf !== undefined) {
    return [...new Set(schema.anyOf.map(typeName))].filter((name) => name !== "null").join(" or ");
  }
  if (schema.type === "array") return typeof schema.items === "object" ? `list of ${typeName(schema.items)}` : "list";
  if (schema.type === "object") return schema.properties === undefined ? "map" : "block";
  return Array.isArray(schema.type) ? schema.type.join(" or ") : String(schema.type ?? "any");
}

function defaultText(schema: JsonSchema): string {
  if (schema.default === undefined || typeof schema.default === "object") return "";
  return `\`${schema.default === "" ? '""' : String(schema.default)}\``;
}

/** The body of a CONFIG.md: one table, one row a key. `environmentName` says how a key is set from outside, or null. */
export function configTable(schema: z.ZodType, environmentName: (path: string) => string | null): string {
  const cell = (text: string): string => text.replaceAll("|", "\\|").replaceAll("\n", " ");
  const lines = ["| key | type | default | environment | meaning |", "|---|---|---|---|---|"];
  for (const row of configRows(schema)) {
    const environment = environmentName(row.path);
    lines.push(
      `| \`${row.path}\` | ${cell(row.type)} | ${cell(row.defaultText)} | ${environment === null ? "" : `\`${environment}\``} | ${cell(row.description)} |`,
    );
  }
  return `${lines.join("\n")}\n`;
}
