import type { GrantReason, PromptPrefix } from "../ports/coordinator.ts";
import type { Candidate, RoutingSettings } from "../routing/candidate.ts";
import type { Choice, PickHints } from "../routing/pick.ts";
import { termsOf } from "../routing/score.ts";

/** Replicas named in the reason of a grant. */
const MOST_EXPLAINED = 8;

export interface GrantCircumstances {
  readonly band: string;
  readonly saturation: number;
  readonly ceiling: number;
  /** Replicas that had room. */
  readonly free: readonly Candidate[];
  readonly hints: PickHints;
  readonly prefix: PromptPrefix | null;
  readonly choice: Choice;
}

/** Why a request went where it went, for its owner and for operators. */
export function grantReason(found: GrantCircumstances, settings: RoutingSettings): GrantReason {
  const { band, saturation, ceiling, free, hints, prefix, choice } = found;
  const scored = free.map((candidate) => {
    const terms = termsOf(candidate, hints.scored, settings);
    const seconds = terms.load + terms.kv + terms.slo;
    const matchedBytes = hints.affinity.matched.get(candidate.key) ?? 0;
    return { replica: candidate.key, seconds, terms, matchedBytes };
  });
  return {
    band,
    saturation,
    ceiling,
    candidates:
      scored.length === 1
        ? scored
        : scored.toSorted((left, right) => left.seconds - right.seconds).slice(0, MOST_EXPLAINED),
    promptBytes: prefix?.bytes ?? 0,
    by: choice.by,
  };
}
