import type { GrantReason, ReplicaTarget, SettleRequest, UsedTokens } from "../../ports/coordinator.ts";
import type { RequestOutcome } from "../../ports/ledger.ts";
import type { Refusal } from "../relay/refusal.ts";
import type { RelayResult } from "../relay/relay-result.ts";
import type { ChainLink } from "./model-chain.ts";

/** One attempt that has ended. */
export interface MadeAttempt {
  /** From 1, over all models and machines of a request. */
  readonly attempt: number;
  readonly link: ChainLink;
  readonly target: ReplicaTarget;
  readonly result: RelayResult;
  readonly why: GrantReason | null;
  /** Another machine was faster to begin, and this one was cancelled for it. */
  readonly lostRace: boolean;
}

/** How a request ended before or after its attempts; what is told to the client comes last. */
export interface Ending {
  readonly outcome: RequestOutcome;
  readonly refusal: Refusal | null;
}

/** Exact where the machine told; else what came, and the prompt once it had begun to answer. */
export function usedBy(result: RelayResult | null, inputTokensEstimate: number): UsedTokens | null {
  if (result === null || result.nothingComputed) return null;
  if (result.usage !== null) return result.usage;
  if (!result.answering) return null;
  return { promptTokens: inputTokensEstimate, cachedTokens: 0, completionTokens: result.tokenEvents };
}

/** Of a stream whose first token came, from `sinceMs` on. */
export function paceOf(result: RelayResult | null, sinceMs: number): SettleRequest["pace"] | null {
  const first = result?.firstTokenAtMs ?? null;
  const last = result?.lastTokenAtMs ?? null;
  if (result === null || first === null || last === null) return null;
  return { ttftMs: first - sinceMs, tpotMs: tpotOf(result, first, last) };
}

/** Between the first token and the last; null where there was only one. */
export function tpotOf(result: RelayResult, firstAtMs: number, lastAtMs: number): number | null {
  const tokens = result.usage?.completionTokens ?? result.tokenEvents;
  return tokens > 1 ? (lastAtMs - firstAtMs) / (tokens - 1) : null;
}
