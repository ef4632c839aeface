import type { z } from "zod";
import { configRows } from "./reference.ts";

/** `auth.default_rpm` as `STEERAGE_AUTH__DEFAULT_RPM`. Entries of lists and maps have no environment name: null. */
export function environmentName(prefix: string, path: string): string | null {
  if (path.includes("[]") || path.includes("*")) return null;
  return `${prefix}${path.replaceAll(".", "__").toUpperCase()}`;
}

/**
 * Lays the environment over what a file said: environment wins. Values are text; a list is comma-separated, and
 * `true`, `false` and numbers are read as such where the schema wants them. The input is not changed.
 */
export function withEnvironment(
  document: unknown,
  schema: z.ZodType,
  prefix: string,
  environment: Readonly<Record<string, string | undefined>>,
): unknown {
  let result: unknown = document;
  for (const row of configRows(schema)) {
    const name = environmentName(prefix, row.path);
    const text = name === null ? undefined : environment[name];
    if (text === undefined || row.type === "block" || row.type === "map") continue;
    result = withValue(result, row.path.split("."), valueOf(text, row.type));
  }
  return result;
}

function valueOf(text: string, type: string): unknown {
  if (type.startsWith("list of ")) {
    return text === "" ? [] : text.split(",").map((entry) => valueOf(entry.trim(), type.slice("list of ".length)));
  }
  if (type === "boolean" && (text === "true" || text === "false")) return text === "true";
  if ((type.includes("integer") || type.includes("number")) && text.trim() !== "" && Number.isFinite(Number(text)))
    return Number(text);
  return text;
}

function withValue(document: unknown, path: readonly string[], value: unknown): unknown {
  const [step, ...rest] = path;
  if (step === undefined) return value;
  const base = typeof document === "object" && document !== null && !Array.isArray(document) ? document : {};
  const members: Record<string, unknown> = { ...base };
  members[step] = withValue(members[step], rest, value);
  return members;
}
