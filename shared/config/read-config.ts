import type { z } from "zod";
import { paramOf } from "../errors/zod-error.ts";

/** A configuration that cannot be used; the message names every faulty key and is meant for the operator. */
export class ConfigError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "ConfigError";
  }
}

/** What to say of a key that the schema does not have: `place` is its block's path, `[]` for entries of a list. */
export type HintOfKey = (place: string, key: string) => string | null;

/** Reads a parsed document by its schema and freezes the result, deeply. */
export function readConfig<Schema extends z.ZodType>(
  schema: Schema,
  document: unknown,
  where: string,
  hintOf: HintOfKey = () => null,
): z.output<Schema> {
  const result = schema.safeParse(document ?? {});
  if (result.success) return deepFreeze(result.data);
  const faults = result.error.issues.flatMap((issue) => [
    `  ${paramOf(issue.path) || "(file)"}: ${issue.message}`,
    ...hintsOf(issue, hintOf),
  ]);
  throw new ConfigError(`${where} cannot be used:\n${faults.join("\n")}`);
}

function hintsOf(issue: z.core.$ZodIssue, hintOf: HintOfKey): string[] {
  if (issue.code !== "unrecognized_keys") return [];
  const place = paramOf(issue.path).replaceAll(/\[\d+\]/g, "[]");
  return issue.keys.flatMap((key) => {
    const hint = hintOf(place, key);
    return hint === null ? [] : [`    '${key}': ${hint}`];
  });
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) deepFreeze(member);
  }
  return value;
}
