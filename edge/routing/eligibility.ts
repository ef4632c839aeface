import { canDo, hasFeature } from "./capabilities.ts";
import { kept } from "./kept.ts";
import { isReachable, type Candidate, type Requirement, type RoutingSettings } from "./candidate.ts";

export type Eligibility =
  | { readonly kind: "eligible"; readonly candidates: readonly Candidate[] }
  /** Nothing is ready that could serve this, but something may become so. */
  | { readonly kind: "no_machine" }
  /** What is ready does not do this kind of request. */
  | { readonly kind: "no_capability" }
  /** Nothing holds the SAEs; `available` are those that ready replicas hold. */
  | { readonly kind: "no_sae"; readonly available: readonly string[] }
  /** Whatever could serve this was tried already. */
  | { readonly kind: "all_tried" };

/** Which replicas may serve a request at all, apart from whether they have room now. */
export function eligible(
  candidates: readonly Candidate[],
  requirement: Requirement,
  settings: RoutingSettings,
  nowMs: number,
): Eligibility {
  const usable = kept(candidates, isUsable);
  if (usable.length === 0) return { kind: "no_machine" };
  const capable = kept(usable, (candidate) => isCapable(candidate, requirement));
  if (capable.length === 0) return { kind: "no_capability" };
  const holding = kept(capable, (candidate) => holdsSaes(candidate, requirement));
  if (holding.length === 0) {
    if (candidates.some((candidate) => !candidate.usable && holdsSaes(candidate, requirement)))
      return { kind: "no_machine" };
    const available = new Set(capable.flatMap(({ kind, saes }) => (kind === "host" ? saes : [])));
    return { kind: "no_sae", available: [...available].toSorted() };
  }
  const roomy = withContext(holding, requirement.contextLength);
  const untried = kept(roomy, ({ key }) => !requirement.excludedReplicas.includes(key));
  if (untried.length === 0) return { kind: "all_tried" };
  return { kind: "eligible", candidates: withoutDoubtful(untried, settings, nowMs) };
}

const isUsable = ({ usable }: Candidate): boolean => usable;

function isCapable(candidate: Candidate, { capability, features }: Requirement): boolean {
  return canDo(candidate, capability) && features.every((feature) => hasFeature(candidate, feature));
}

/** Those whose context is long enough; where none is, the longest, whose engine then ends answers early. */
function withContext(candidates: readonly Candidate[], needed: number | null): readonly Candidate[] {
  if (needed === null) return candidates;
  const longest = Math.max(...candidates.map(({ contextLength }) => contextLength ?? Infinity));
  return candidates.filter(({ contextLength }) => (contextLength ?? Infinity) >= Math.min(needed, longest));
}

function holdsSaes(candidate: Candidate, { saeIds, needsSomeSae }: Requirement): boolean {
  if (saeIds.length === 0 && !needsSomeSae) return true;
  if (candidate.kind === "endpoint") return false;
  return candidate.saes.length > 0 && saeIds.every((id) => candidate.saes.includes(id));
}

/** Silent and ejected replicas step back while there are others; the last ones never do. */
function withoutDoubtful(
  candidates: readonly Candidate[],
  settings: RoutingSettings,
  nowMs: number,
): readonly Candidate[] {
  const reachable = kept(candidates, (candidate) => isReachable(candidate, settings));
  const healthy = kept(reachable, ({ ejectedUntilMs, probing }) => ejectedUntilMs <= nowMs && !probing);
  if (healthy.length > 0) return healthy;
  return reachable.length > 0 ? reachable : candidates;
}
