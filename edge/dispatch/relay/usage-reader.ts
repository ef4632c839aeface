import type { TokenCounts } from "../../ports/ledger.ts";

/** A count that no request reaches is a fault of the server, and its cost might not fit the ledger's integers. */
const MAX_TOKENS = 2 ** 31 - 1;

/**
 * The counts of an answer's `usage` member; null when there is none that can be believed. Embeddings have no
 * completion, old servers no details. By hand, since every answer passes here and a schema costs ten times as much.
 */
export function readUsage(usage: unknown): TokenCounts | null {
  if (!isObject(usage)) return null;
  const { prompt_tokens: prompt, completion_tokens: completion, prompt_tokens_details: details } = usage;
  if (!isCount(prompt) || !isCountOrNothing(completion)) return null;
  let cached: unknown = null;
  if (details !== undefined && details !== null) {
    if (!isObject(details)) return null;
    cached = details["cached_tokens"];
  }
  if (!isCountOrNothing(cached)) return null;
  return { promptTokens: prompt, completionTokens: completion ?? 0, cachedTokens: Math.min(prompt, cached ?? 0) };
}

export function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function isCount(value: unknown): value is number {
  return Number.isInteger(value) && typeof value === "number" && value >= 0 && value <= MAX_TOKENS;
}

function isCountOrNothing(value: unknown): value is number | null | undefined {
  return value === undefined || value === null || isCount(value);
}
