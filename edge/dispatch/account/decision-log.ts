import type { GrantReason, Pressure } from "../../ports/coordinator.ts";
import type { RequestOutcome } from "../../ports/ledger.ts";
import type { MadeAttempt } from "../attempts/made-attempt.ts";

/** One attempt of a request and what decided where it went. */
export interface DecidedAttempt {
  /** From 1. */
  readonly attempt: number;
  readonly model: string;
  readonly replica: string;
  /** `lost_race`: another machine was faster to begin. */
  readonly end: "answered" | "failed" | "cancelled" | "lost_race";
  /** How it failed, or null. */
  readonly failure: string | null;
  readonly why: GrantReason | null;
}

/** What was decided for one request, for its owner and for operators. Holds no text of it. */
export interface RequestDecision {
  readonly requestId: string;
  readonly project: string;
  /** When it was received, Unix milliseconds. */
  readonly atMs: number;
  readonly askedModel: string;
  /** The one that answered, or was asked last. */
  readonly model: string;
  readonly band: string;
  /** Null when it never waited for a machine. */
  readonly queueMs: number | null;
  readonly ttftMs: number | null;
  readonly totalMs: number;
  readonly outcome: RequestOutcome;
  /** The code of what the client was told instead of an answer. */
  readonly refusal: string | null;
  /** How things stood when a pool refused it; null when none did. */
  readonly refusedUnder: Pressure | null;
  readonly attempts: readonly DecidedAttempt[];
}

export function decidedAttempt({ attempt, link, target, result, why, lostRace }: MadeAttempt): DecidedAttempt {
  const ends = { completed: "answered", failed: "failed", cancelled: "cancelled" } as const;
  return {
    attempt,
    model: link.model.id,
    replica: target.key,
    end: lostRace ? "lost_race" : ends[result.kind],
    failure: result.kind === "failed" ? (result.refusal?.body.error.code ?? "failed") : null,
    why,
  };
}

const KEPT_MS = 3_600_000;
const MAX_KEPT = 10_000;

interface Kept {
  readonly decision: RequestDecision;
  readonly atMs: number;
}

/**
 * The decisions of the last hour, as many as fit. Their order stands in a ring of its own: the first entry of a map whose
 * first entries are always taken out is far behind the gaps that those left.
 */
export class DecisionLog {
  readonly #kept = new Map<string, Kept>();
  readonly #ring: (Kept | undefined)[] = [];
  /** Place in the ring of the oldest, and how many follow from there. */
  #oldest = 0;
  #count = 0;

  add(decision: RequestDecision, nowMs: number): void {
    const kept = { decision, atMs: nowMs };
    if (this.#count === MAX_KEPT) this.#dropOldest();
    this.#ring[(this.#oldest + this.#count) % MAX_KEPT] = kept;
    this.#count++;
    this.#kept.set(decision.requestId, kept);
    while (nowMs - (this.#ring[this.#oldest]?.atMs ?? nowMs) > KEPT_MS) this.#dropOldest();
  }

  /** Null when it is not known, too old, or another project's. */
  find(requestId: string, project: string, nowMs: number): RequestDecision | null {
    const kept = this.#kept.get(requestId);
    if (kept === undefined || nowMs - kept.atMs > KEPT_MS || kept.decision.project !== project) return null;
    return kept.decision;
  }

  /** The latest of all projects, the newest first. For operators. */
  latest(count: number, nowMs: number): readonly RequestDecision[] {
    const all = [...this.#kept.values()];
    return all
      .slice(Math.max(0, all.length - count))
      .filter(({ atMs }) => nowMs - atMs <= KEPT_MS)
      .map(({ decision }) => decision)
      .toReversed();
  }

  #dropOldest(): void {
    const kept = this.#ring[this.#oldest];
    this.#ring[this.#oldest] = undefined;
    this.#oldest = (this.#oldest + 1) % MAX_KEPT;
    this.#count--;
    // The same request may have been told of again.
    if (kept !== undefined && this.#kept.get(kept.decision.requestId) === kept)
      this.#kept.delete(kept.decision.requestId);
  }
}
