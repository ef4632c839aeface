import { z } from "zod";
import type { TokenCounts } from "../../ports/ledger.ts";

/** A count that no request reaches is a fault of the server, and its cost might not fit the ledger's integers. */
const MAX_TOKENS = 2 ** 31 - 1;
const count = z.int().min(0).max(MAX_TOKENS);

/** What engines say of usage: embeddings have no completion, old servers no details. */
const usageSchema = z.looseObject({
  prompt_tokens: count,
  completion_tokens: count.nullish(),
  prompt_tokens_details: z.looseObject({ cached_tokens: count.nullish() }).nullish(),
});

/** The counts of an answer's `usage` member; null when there is none that can be believed. */
export function readUsage(usage: unknown): TokenCounts | null {
  const result = usageSchema.safeParse(usage);
  if (!result.success) return null;
  const { prompt_tokens, completion_tokens, prompt_tokens_details } = result.data;
  return {
    promptTokens: prompt_tokens,
    completionTokens: completion_tokens ?? 0,
    cachedTokens: Math.min(prompt_tokens, prompt_tokens_details?.cached_tokens ?? 0),
  };
}
