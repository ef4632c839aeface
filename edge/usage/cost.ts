import type { Price, TokenCounts } from "../ports/ledger.ts";

export const NO_TOKENS: TokenCounts = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };

/**
 * What tokens cost, in nano-dollars. A price in micro-dollars per 1,000 tokens is the same number of nano-dollars per
 * token, so nothing is ever rounded.
 */
export function costNanoUsd(counts: TokenCounts, price: Price): bigint {
  return (
    BigInt(counts.promptTokens - counts.cachedTokens) * BigInt(price.promptPer1k) +
    BigInt(counts.cachedTokens) * BigInt(price.cachedPer1k) +
    BigInt(counts.completionTokens) * BigInt(price.completionPer1k)
  );
}
