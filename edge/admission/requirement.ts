import type { AdmitRequest, ContextNeed } from "../ports/coordinator.ts";
import { canDo } from "../routing/capabilities.ts";
import type { Candidate, Requirement } from "../routing/candidate.ts";

/** What a request asks of a replica. */
export function requirementOf(request: AdmitRequest, candidates: readonly Candidate[]): Requirement {
  const { capability, saeIds, needsSomeSae, excludedReplicas, features = NONE } = request;
  const contextLength = contextClass(request.context, candidates);
  return { capability, saeIds, needsSomeSae, excludedReplicas, features, contextLength };
}

const NONE: readonly string[] = [];

/** Under which all that ask the same are looked at once. */
export function keyOf(requirement: Requirement): string {
  const { capability, saeIds, needsSomeSae, excludedReplicas, features, contextLength } = requirement;
  return JSON.stringify([capability, saeIds, needsSomeSae, excludedReplicas, features, contextLength]);
}

/**
 * The shortest context of the pool that holds what is expected, so that requests of any length make no more kinds
 * than there are contexts; null where every replica holds it, or none does.
 */
function contextClass(need: ContextNeed | undefined, candidates: readonly Candidate[]): number | null {
  if (need === undefined) return null;
  let shortest = Infinity;
  let isTooLongForSome = false;
  for (const { contextLength } of candidates) {
    if (contextLength === null) continue;
    if (contextLength < need.expectedTokens) isTooLongForSome = true;
    else shortest = Math.min(shortest, contextLength);
  }
  if (!isTooLongForSome) return null;
  // Where none is long enough, the longest will do: the engine ends the answer where the context ends.
  return shortest === Infinity ? Number.MAX_SAFE_INTEGER : shortest;
}

/** The longest context of those that could serve it, if the prompt alone surely passes it; else null. */
export function exceededContext(request: AdmitRequest, candidates: readonly Candidate[]): number | null {
  const { context, capability } = request;
  if (context === undefined) return null;
  const capable = candidates.filter((candidate) => candidate.usable && canDo(candidate, capability));
  if (capable.length === 0) return null;
  const longest = Math.max(...capable.map(({ contextLength }) => contextLength ?? Infinity));
  return context.leastPromptTokens > longest ? longest : null;
}
