import type { PromptPrefix } from "../ports/coordinator.ts";
import type { PrefixSettings } from "./candidate.ts";

const NOTHING: ReadonlyMap<string, number> = new Map();

/**
 * Which machines have seen which beginnings of prompts: a tree whose nodes are known by a hash of the whole path to
 * them, so that no text is kept. What was used longest ago leaves first, leaves before roots; memory is bounded by
 * the number of entries, one for each machine at each node.
 */
export class PrefixIndex {
  #settings: PrefixSettings;
  /** Machines by node, each with the time at which it last saw it. In order of last use. */
  readonly #nodes = new Map<number, Map<string, number>>();
  #entries = 0;

  constructor(settings: PrefixSettings) {
    this.#settings = settings;
  }

  /** What is known stays known; bounds hold from the next prompt on. */
  reconfigure(settings: PrefixSettings): void {
    this.#settings = settings;
  }

  /** Entries held: nodes times the machines that know them. */
  get size(): number {
    return this.#entries;
  }

  /** Bytes of this prompt that machines have seen, of those that have seen enough of it. */
  match(prefix: PromptPrefix | null, nowMs: number): ReadonlyMap<string, number> {
    const { enabled, minMatchBytes, matchRatio, ttlMs } = this.#settings;
    if (!enabled || prefix === null || prefix.hashes.length === 0) return NOTHING;
    const matched = new Map<string, number>();
    for (const [place, hash] of prefix.hashes.entries()) {
      const machines = this.#nodes.get(hash);
      if (machines === undefined) break;
      const bytes = Math.min(prefix.bytes, (place + 1) * prefix.blockBytes);
      for (const [key, seenAtMs] of machines) if (nowMs - seenAtMs <= ttlMs) matched.set(key, bytes);
    }
    const enough = Math.max(minMatchBytes, matchRatio * prefix.bytes);
    for (const [key, bytes] of matched) if (bytes < enough) matched.delete(key);
    return matched;
  }

  /** The machine gets this prompt, so it will know it. */
  learn(prefix: PromptPrefix | null, key: string, nowMs: number): void {
    if (!this.#settings.enabled || prefix === null) return;
    // From the end, so that of one path the root was used last.
    for (const hash of prefix.hashes.toReversed()) {
      const machines = this.#nodes.get(hash) ?? new Map<string, number>();
      if (!machines.has(key)) this.#entries++;
      machines.set(key, nowMs);
      this.#nodes.delete(hash);
      this.#nodes.set(hash, machines);
    }
    this.#shrink(nowMs);
  }

  /** The machine failed on this prompt: what it has of it is not known any more. */
  unlearn(prefix: PromptPrefix | null, key: string): void {
    for (const hash of prefix?.hashes ?? []) {
      const machines = this.#nodes.get(hash);
      if (machines === undefined || !machines.delete(key)) continue;
      this.#entries--;
      if (machines.size === 0) this.#nodes.delete(hash);
    }
  }

  /** The machine left, or lost its caches. */
  forget(key: string): void {
    for (const [hash, machines] of this.#nodes) {
      if (!machines.delete(key)) continue;
      this.#entries--;
      if (machines.size === 0) this.#nodes.delete(hash);
    }
  }

  /** Drops what is too old or too much, oldest first. */
  #shrink(nowMs: number): void {
    const { maxNodes, ttlMs } = this.#settings;
    for (const [hash, machines] of this.#nodes) {
      const latestMs = Math.max(...machines.values());
      if (this.#entries <= maxNodes && nowMs - latestMs <= ttlMs) return;
      this.#entries -= machines.size;
      this.#nodes.delete(hash);
    }
  }
}
