import type { z } from "zod";
import { paramOf } from "../errors/zod-error.ts";

/** A configuration that cannot be used; the message names every faulty key and is meant for the operator. */
export class ConfigError extends Error {
  constructor(message: string) {
    super(message);
    this.name = "ConfigError";
  }
}

/** Reads a parsed document by its schema and freezes the result, deeply. */
export function readConfig<Schema extends z.ZodType>(
  schema: Schema,
  document: unknown,
  where: string,
): z.output<Schema> {
  const result = schema.safeParse(document ?? {});
  if (result.success) return deepFreeze(result.data);
  const faults = result.error.issues.map((issue) => `  ${paramOf(issue.path) || "(file)"}: ${issue.message}`);
  throw new ConfigError(`${where} cannot be used:\n${faults.join("\n")}`);
}

function deepFreeze<T>(value: T): T {
  if (typeof value === "object" && value !== null && !Object.isFrozen(value)) {
    Object.freeze(value);
    for (const member of Object.values(value)) deepFreeze(member);
  }
  return value;
}
