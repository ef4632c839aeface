import type { AttachedSae, ReportedProfile } from "../../shared/protocol/report.ts";
import { FEATURES, hasFeature, type Abilities } from "../routing/capabilities.ts";
import type { PoolDigest, ReplicaDigest } from "../ports/coordinator.ts";
import type { ServedModel } from "../ports/fleet.ts";
import type { ModelNote } from "./settings.ts";

export interface PoolMembers {
  readonly digest: PoolDigest;
  /** SAEs of replicas that are ready. */
  readonly saes: readonly AttachedSae[];
  /** Of the same replicas. */
  readonly profiles: readonly ReportedProfile[];
  /** Names under which its backends know the model, where they differ from the pool's. */
  readonly otherNames: readonly string[];
  readonly sinceMs: number;
  /** Keys of replicas whose host is silent. */
  readonly silent: ReadonlySet<string>;
  /** Of each replica why it failed; null for one that did not, or of which nothing is known. */
  readonly failures: readonly (string | null)[];
}

/** A pool as callers see it. The context is the smallest of its replicas, since any of them may answer. */
export function servedModel(members: PoolMembers, note: ModelNote | undefined): ServedModel {
  const { pool, replicas } = members.digest;
  const ready = replicas.filter((replica) => replica.ready && !replica.draining);
  const considered = ready.length > 0 ? ready : replicas;
  const contexts = considered.flatMap(({ contextLength }) => (contextLength === null ? [] : [contextLength]));
  if (note?.contextLength !== null && note?.contextLength !== undefined) contexts.push(note.contextLength);
  const saes = new Map(members.saes.map((sae) => [sae.id, sae]));
  return {
    id: pool,
    pool,
    aliases: [...new Set([...(note?.aliases ?? []), ...members.otherNames])],
    description: note?.description ?? null,
    contextLength: contexts.length === 0 ? null : Math.min(...contexts),
    longestContext: longestOf(replicas),
    maxOutput: note?.maxOutput ?? null,
    capabilities: [...new Set(considered.flatMap(abilitiesTold))].toSorted(),
    lacks: FEATURES.filter(
      (feature) => considered.length > 0 && considered.every((replica) => !hasFeature(abilitiesOf(replica), feature)),
    ),
    fallbacks: note?.fallbacks ?? [],
    saes: [...saes.values()].toSorted((left, right) => left.layer - right.layer || (left.id < right.id ? -1 : 1)),
    profiles: [...new Map(members.profiles.map((profile) => [profile.name, profile])).values()].toSorted(
      (left, right) => (left.name < right.name ? -1 : 1),
    ),
    readyReplicas: ready.filter(({ target }) => !members.silent.has(target.key)).length,
    failure: members.failures.includes(null) ? null : (members.failures[0] ?? null),
    sinceMs: members.sinceMs,
  };
}

/** Of all of them: one that is not ready now may be when the request is sent. */
function longestOf(replicas: readonly ReplicaDigest[]): number | null {
  let longest: number | null = null;
  for (const { contextLength } of replicas) {
    if (contextLength === null) return null;
    longest = Math.max(longest ?? 0, contextLength);
  }
  return longest;
}

function abilitiesOf({ target, capabilities, lacks = [] }: ReplicaDigest): Abilities {
  return { kind: target.kind, capabilities, lacks };
}

const abilitiesTold = ({ capabilities, lacks = [] }: ReplicaDigest): readonly string[] =>
  capabilities.filter((capability) => !lacks.includes(capability));

/** A name is a pool's own before it is anybody's alias. */
export function resolveName(models: readonly ServedModel[], name: string): ServedModel | null {
  return models.find(({ id }) => id === name) ?? models.find(({ aliases }) => aliases.includes(name)) ?? null;
}
