import type { Principal } from "../ports/principal.ts";
import { VerdictCache, type VerdictCacheSettings } from "./verdict-cache.ts";

/**
 * What was found out about credentials, as plain data: where an authenticator lives for one request only, as on
 * Workers, its memory outlives it.
 */
export interface VerdictMemory {
  readonly keys: VerdictCache<Principal>;
  readonly hosts: VerdictCache<string>;
  /** Of the keys, as the store told last; null before that. */
  revision: number | null;
  /** When it was last asked for, by the monotonic clock. */
  askedAtMs: number | null;
}

export function newVerdictMemory(settings: VerdictCacheSettings): VerdictMemory {
  return { keys: new VerdictCache(settings), hosts: new VerdictCache(settings), revision: null, askedAtMs: null };
}
