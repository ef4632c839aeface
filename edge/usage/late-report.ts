import type { AttemptRow, LateReport, UsageRow } from "../ports/usage-store.ts";
import { costNanoUsd } from "./cost.ts";
import { UNKNOWN_REQUEST } from "./request-account.ts";

export interface StoredRows {
  readonly attempt: AttemptRow | null;
  readonly usage: UsageRow | null;
}

/**
 * What is stored of an attempt after a host reported it late. The machine's counts replace the edge's; a billed
 * attempt takes its usage row with it, so that both sums stay equal. Repeating it changes nothing more. A host cannot
 * touch an attempt of another one. An attempt that was never stored is kept as unknown and billed to nobody.
 */
export function applyLateReport(stored: StoredRows, late: LateReport): StoredRows {
  if (stored.attempt === null) {
    return { attempt: { ...late.attempt, unbilledReason: UNKNOWN_REQUEST }, usage: stored.usage };
  }
  if (stored.attempt.backend !== late.attempt.backend) return stored;
  const attempt = { ...late.attempt, unbilledReason: stored.attempt.unbilledReason };
  const { usage } = stored;
  if (usage === null || attempt.unbilledReason !== null) return { attempt, usage };
  const counts = {
    promptTokens: attempt.computedPrompt + attempt.cachedPrompt,
    cachedTokens: attempt.cachedPrompt,
    completionTokens: attempt.computedCompletion,
  };
  const isSame =
    usage.promptTokens === counts.promptTokens &&
    usage.cachedTokens === counts.cachedTokens &&
    usage.completionTokens === counts.completionTokens &&
    usage.exactness === attempt.exactness;
  if (isSame) return { attempt, usage };
  return {
    attempt,
    usage: {
      ...usage,
      ...counts,
      exactness: attempt.exactness,
      costNanoUsd: costNanoUsd(counts, usage.price).toString(),
      settledAtMs: Math.max(usage.settledAtMs, late.reportedAtMs),
    },
  };
}
