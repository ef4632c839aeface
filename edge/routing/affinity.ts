import { inFlightOf, isFresh, type Candidate, type RoutingSettings } from "./candidate.ts";
import { TextHash } from "./hash.ts";

/** What ties a request to machines. */
export interface Affinity {
  /** Hash of project and session; null when the caller named none. */
  readonly session: number | null;
  /** Bytes of this prompt that each machine has seen; machines that have seen too little are not in it. */
  readonly matched: ReadonlyMap<string, number>;
}

export const NO_AFFINITY: Affinity = { session: null, matched: new Map() };

/**
 * Those of `free` that the request is tied to and that are not too loaded for it: first by the longest prompt match,
 * else by session. Empty: nothing speaks for any.
 */
export function affine(
  free: readonly Candidate[],
  all: readonly Candidate[],
  { session, matched }: Affinity,
  settings: RoutingSettings,
): readonly Candidate[] {
  if (!settings.policy.affinity || (matched.size === 0 && session === null)) return [];
  const usable = all.filter((candidate) => candidate.usable);
  const shares = fairShares(usable, settings);
  const balanced = free.filter((candidate) => isBalanced(candidate, usable, settings));
  const within = (candidate: Candidate): boolean =>
    inFlightOf(candidate, settings) + 1 <= (shares.get(candidate.key) ?? Infinity);
  if (matched.size > 0) {
    const known = balanced.filter((candidate) => matched.has(candidate.key) && within(candidate));
    const longest = Math.max(...known.map(({ key }) => matched.get(key) ?? 0));
    if (known.length > 0) return known.filter(({ key }) => matched.get(key) === longest);
  }
  if (session === null) return [];
  const [first] = balanced
    .filter(within)
    .map((candidate) => ({ candidate, rank: rankOf(session, candidate) }))
    .toSorted((left, right) => right.rank - left.rank);
  return first === undefined ? [] : [first.candidate];
}

/** Rendezvous: every machine draws a number for the session, so a machine that joins or leaves moves only its own. */
function rankOf(session: number, { key, slots, weight }: Candidate): number {
  const draw = (new TextHash().update(`${session}/${key}`).value() + 1) / 2 ** 53;
  return -Math.max(slots * weight, Number.EPSILON) / Math.log(Math.min(draw, 1 - Number.EPSILON));
}

/** Requests up to which a machine is given what it knows; half its slots are always within its share. */
function fairShares(usable: readonly Candidate[], settings: RoutingSettings): ReadonlyMap<string, number> {
  const slots = usable.reduce((sum, candidate) => sum + candidate.slots, 0);
  const requests = usable.reduce((sum, candidate) => sum + inFlightOf(candidate, settings), 1);
  return new Map(
    usable.map((candidate) => {
      const share = (settings.sessionLoadFactor * requests * candidate.slots) / Math.max(1, slots);
      return [candidate.key, Math.max(Math.ceil(share), Math.ceil(candidate.slots / 2))];
    }),
  );
}

/** The guard of the seed: only both distances together make a machine too loaded. */
function isBalanced(candidate: Candidate, usable: readonly Candidate[], settings: RoutingSettings): boolean {
  const { balanceAbs, balanceRel } = settings.prefix;
  const least = Math.min(...usable.map((other) => loadOf(other, settings)));
  const load = loadOf(candidate, settings);
  return load - least <= balanceAbs || load <= least * balanceRel;
}

function loadOf(candidate: Candidate, settings: RoutingSettings): number {
  return inFlightOf(candidate, settings) + (isFresh(candidate, settings) ? candidate.waiting : 0);
}
