import type { GrantReason, ReplicaTarget, UsedTokens } from "../../ports/coordinator.ts";
import type { RequestOutcome } from "../../ports/ledger.ts";
import type { Refusal } from "../relay/refusal.ts";
import type { RelayResult } from "../relay/relay-result.ts";

/** One attempt that has ended. */
export interface MadeAttempt {
  /** From 1, over all models and machines of a request. */
  readonly attempt: number;
  readonly target: ReplicaTarget;
  readonly result: RelayResult;
  readonly why: GrantReason | null;
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
