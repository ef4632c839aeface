import { inFlightOf, isFresh, roomOf, type Candidate, type Requirement, type RoutingSettings } from "./candidate.ts";
import { eligible, type Eligibility } from "./eligibility.ts";

export interface PickState {
  readonly nowMs: number;
  /** Counts picks, so that equals take turns. */
  readonly turn: number;
  readonly settings: RoutingSettings;
}

export type Pick =
  | { readonly kind: "picked"; readonly key: string }
  /** Eligible replicas exist, but none has room at the moment. */
  | { readonly kind: "none"; readonly why: "busy" }
  | { readonly kind: "none"; readonly why: "no_sae"; readonly available: readonly string[] }
  | { readonly kind: "none"; readonly why: Exclude<Eligibility["kind"], "eligible" | "no_sae"> };

/**
 * The least loaded replica of the best tier that has room: (in flight + waiting) / (slots x weight), where a report
 * counts only while it is fresh and our own share of it is replaced by what we hold now. Equals take turns.
 */
export function pick(candidates: readonly Candidate[], requirement: Requirement, state: PickState): Pick {
  const found = eligible(candidates, requirement, state.settings, state.nowMs);
  if (found.kind === "no_sae") return { kind: "none", why: "no_sae", available: found.available };
  if (found.kind !== "eligible") return { kind: "none", why: found.kind };
  const free = found.candidates.filter(
    (candidate) => candidate.busyUntilMs <= state.nowMs && roomOf(candidate, state.settings) > 0,
  );
  if (free.length === 0) return { kind: "none", why: "busy" };
  const tier = Math.min(...free.map(({ priority }) => priority));
  const scored = free
    .filter(({ priority }) => priority === tier)
    .map((candidate) => ({ key: candidate.key, load: loadOf(candidate, state.settings) }));
  const least = Math.min(...scored.map(({ load }) => load));
  const equals = scored
    .filter(({ load }) => load === least)
    .map(({ key }) => key)
    .toSorted();
  const key = equals[state.turn % equals.length];
  return key === undefined ? { kind: "none", why: "busy" } : { kind: "picked", key };
}

/** 0 is idle, 1 is full. */
export function loadOf(candidate: Candidate, settings: RoutingSettings): number {
  const waiting = isFresh(candidate, settings) ? candidate.waiting : 0;
  return (inFlightOf(candidate, settings) + waiting) / Math.max(candidate.slots * candidate.weight, Number.EPSILON);
}
