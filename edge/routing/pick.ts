import { affine, type Affinity, NO_AFFINITY } from "./affinity.ts";
import { roomOf, type Candidate, type Requirement, type RoutingSettings } from "./candidate.ts";
import { kept } from "./kept.ts";
import { eligible, type Eligibility } from "./eligibility.ts";
import { secondsOf, TYPICAL_REQUEST, type ScoredRequest } from "./score.ts";

export interface PickState {
  readonly nowMs: number;
  /** Counts picks, so that equals take turns. */
  readonly turn: number;
  readonly settings: RoutingSettings;
  /** Admission is off: a machine without room is as good as another. */
  readonly ignoreRoom?: boolean;
}

/** What speaks for one machine rather than another, beside its load. */
export interface PickHints {
  readonly scored: ScoredRequest;
  readonly affinity: Affinity;
}

const NO_HINTS: PickHints = { scored: TYPICAL_REQUEST, affinity: NO_AFFINITY };

export type NotServable =
  /** Eligible replicas exist, but none has room at the moment. */
  | { readonly kind: "none"; readonly why: "busy" }
  | { readonly kind: "none"; readonly why: "no_sae"; readonly available: readonly string[] }
  | { readonly kind: "none"; readonly why: Exclude<Eligibility["kind"], "eligible" | "no_sae"> };

export type Pick = { readonly kind: "picked"; readonly key: string } | NotServable;

export interface Choice {
  readonly key: string;
  /** What decided. */
  readonly by: "prefix" | "session" | "score";
}

export type Servable = { readonly kind: "servable"; readonly free: readonly Candidate[] } | NotServable;

/** Within this much of the best, machines are equal: differences are noise, and whoever wins them would get all. */
const EQUAL_FACTOR = 1.1;
const EQUAL_SECONDS = 0.005;

/** The replicas of the best tier that have room for such a request now, or why there are none. */
export function servable(candidates: readonly Candidate[], requirement: Requirement, state: PickState): Servable {
  const found = eligible(candidates, requirement, state.settings, state.nowMs);
  if (found.kind === "no_sae") return { kind: "none", why: "no_sae", available: found.available };
  if (found.kind !== "eligible") return { kind: "none", why: found.kind };
  const quiet = kept(found.candidates, ({ busyUntilMs }) => busyUntilMs <= state.nowMs);
  const free = state.ignoreRoom
    ? quiet.length > 0
      ? quiet
      : found.candidates
    : kept(quiet, (candidate) => roomOf(candidate, state.settings) > 0);
  if (free.length === 0) return { kind: "none", why: "busy" };
  const tier = free.reduce((least, { priority }) => Math.min(least, priority), Infinity);
  return { kind: "servable", free: kept(free, ({ priority }) => priority === tier) };
}

/**
 * One of `free`: the machine that knows the prompt or the session, as long as it is not too loaded for that; else the
 * one that would be done soonest. Equals take turns.
 */
export function choose(
  free: readonly Candidate[],
  candidates: readonly Candidate[],
  hints: PickHints,
  state: PickState,
): Choice | null {
  const known = affine(free, candidates, hints.affinity, state.settings);
  const [only] = free;
  if (only !== undefined && free.length === 1)
    return { key: only.key, by: known.length === 0 ? "score" : reasonOf(only.key, hints) };
  const scored = (known.length > 0 ? known : free).map((candidate) => ({
    key: candidate.key,
    seconds: secondsOf(candidate, hints.scored, state.settings),
  }));
  const best = Math.min(...scored.map(({ seconds }) => seconds));
  const equals = scored
    .filter(({ seconds }) => seconds <= Math.max(best * EQUAL_FACTOR, best + EQUAL_SECONDS))
    .map(({ key }) => key)
    .toSorted();
  const key = equals[state.turn % equals.length];
  if (key === undefined) return null;
  return { key, by: known.length === 0 ? "score" : reasonOf(key, hints) };
}

const reasonOf = (key: string, { affinity }: PickHints): Choice["by"] =>
  affinity.matched.has(key) ? "prefix" : "session";

/** Both steps for one request. */
export function pick(
  candidates: readonly Candidate[],
  requirement: Requirement,
  state: PickState,
  hints: PickHints = NO_HINTS,
): Pick {
  const found = servable(candidates, requirement, state);
  if (found.kind === "none") return found;
  const choice = choose(found.free, candidates, hints, state);
  return choice === null ? { kind: "none", why: "busy" } : { kind: "picked", key: choice.key };
}
