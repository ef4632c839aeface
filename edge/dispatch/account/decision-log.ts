import type { GrantReason } from "../../ports/coordinator.ts";
import type { RequestOutcome } from "../../ports/ledger.ts";

/** What was decided for one request, for its owner and for operators. Holds no text of it. */
export interface RequestDecision {
  readonly requestId: string;
  readonly project: string;
  readonly model: string;
  readonly band: string;
  /** Null when it was not admitted. */
  readonly queueMs: number | null;
  readonly outcome: RequestOutcome;
  readonly attempts: readonly {
    readonly replica: string;
    readonly why: GrantReason | null;
    /** What its end meant: how it failed, or null. */
    readonly failure: string | null;
  }[];
}

const KEPT_MS = 3_600_000;
const MAX_KEPT = 10_000;

/** The decisions of the last hour, as many as fit. */
export class DecisionLog {
  readonly #kept = new Map<string, { readonly decision: RequestDecision; readonly atMs: number }>();

  add(decision: RequestDecision, nowMs: number): void {
    this.#kept.set(decision.requestId, { decision, atMs: nowMs });
    for (const [requestId, { atMs }] of this.#kept) {
      if (this.#kept.size <= MAX_KEPT && nowMs - atMs <= KEPT_MS) return;
      this.#kept.delete(requestId);
    }
  }

  /** Null when it is not known, too old, or another project's. */
  find(requestId: string, project: string, nowMs: number): RequestDecision | null {
    const kept = this.#kept.get(requestId);
    if (kept === undefined || nowMs - kept.atMs > KEPT_MS || kept.decision.project !== project) return null;
    return kept.decision;
  }
}
