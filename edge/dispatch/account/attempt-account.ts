import type { ReplicaTarget } from "../../ports/coordinator.ts";
import type { EndedAttempt, TokenCounts } from "../../ports/ledger.ts";
import type { RelayResult } from "../relay/relay-result.ts";

export interface AttemptToAccount {
  readonly requestId: string;
  readonly attempt: number;
  readonly target: Pick<ReplicaTarget, "kind">;
  readonly result: RelayResult;
  readonly inputTokensEstimate: number;
  /** Another attempt answered, or was the last to fail. */
  readonly superseded: boolean;
  /** Another machine was faster to begin, and this one was cancelled for it. */
  readonly lostRace: boolean;
}

const NOTHING: TokenCounts = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };

/**
 * What one attempt computed and who pays. The engine's own usage is exact; without it a host's report will tell, and
 * until then, as for endpoints for good, our count stands: the prompt once the machine had begun to answer, and a
 * token for every chunk with text. Nothing begun, nothing billed.
 */
export function endedAttempt(account: AttemptToAccount): EndedAttempt {
  const { requestId, attempt, target, result, inputTokensEstimate } = account;
  const reason = unbilledReason(account);
  const known = result.nothingComputed ? NOTHING : result.usage;
  if (known !== null)
    return { requestId, attempt, counts: known, exactness: "exact", unbilledReason: reason, awaitReport: false };
  return {
    requestId,
    attempt,
    counts: result.answering
      ? { promptTokens: inputTokensEstimate, cachedTokens: 0, completionTokens: result.tokenEvents }
      : NOTHING,
    exactness: result.tokenEvents > 0 ? "counted" : "estimated",
    unbilledReason: reason,
    awaitReport: target.kind === "host",
  };
}

function unbilledReason({ result, superseded, lostRace }: AttemptToAccount): EndedAttempt["unbilledReason"] {
  if (lostRace) return "hedge";
  if (superseded) return "retry";
  return result.kind === "failed" && result.tokenEvents === 0 ? "failed_before_first_token" : null;
}
