import type { PoolDigest, ReplicaStats } from "../ports/coordinator.ts";
import type { Candidate } from "../routing/candidate.ts";
import { ReplicaBook } from "./replica-book.ts";
import type { AdmissionSettings } from "./settings.ts";

/** Work tokens a second of one slot, before anything was measured. */
const ASSUMED_SPEED = 25;

/** The replicas of one pool, as its owner knows them. */
export class PoolReplicas {
  #settings: AdmissionSettings;
  readonly #books = new Map<string, ReplicaBook>();

  constructor(settings: AdmissionSettings) {
    this.#settings = settings;
  }

  reconfigure(settings: AdmissionSettings): void {
    this.#settings = settings;
    for (const book of this.#books.values()) book.reconfigure(settings);
  }

  get size(): number {
    return this.#books.size;
  }

  /** Of all that can be used, at least one. */
  get slots(): number {
    let slots = 0;
    for (const { usable, digest } of this.#books.values()) if (usable) slots += digest.slots;
    return Math.max(1, slots);
  }

  get(key: string): ReplicaBook | undefined {
    return this.#books.get(key);
  }

  all(): Iterable<ReplicaBook> {
    return this.#books.values();
  }

  /** Of replicas that are out, or that one request is to probe. */
  breakers(nowMs: number): Record<string, "open" | "half_open"> {
    return Object.fromEntries(
      [...this.#books]
        .filter(([, { breaker }]) => !breaker.closed)
        .map(([key, { breaker }]) => [key, breaker.openUntilMs(nowMs) > 0 ? "open" : "half_open"]),
    );
  }

  candidates(nowMs: number): Candidate[] {
    const typical = this.#typicalSpeed();
    return [...this.#books.values()].map((book) => book.candidate(nowMs, typical));
  }

  /** The same after a change of one replica. */
  refreshed(candidates: readonly Candidate[], key: string, nowMs: number): Candidate[] {
    const typical = this.#typicalSpeed();
    return candidates.map((candidate) =>
      candidate.key === key ? (this.#books.get(key)?.candidate(nowMs, typical) ?? candidate) : candidate,
    );
  }

  /** Replicas whose caches are gone: they left, or their process is another. */
  update(digest: PoolDigest, wallNowMs: number, nowMs: number): readonly string[] {
    const named = new Set<string>();
    const emptied: string[] = [];
    const joined = this.#books.size > 0;
    for (const replica of digest.replicas) {
      const { key } = replica.target;
      named.add(key);
      const reportedAtMs = replica.reportedAtMs === null ? null : nowMs - Math.max(0, wallNowMs - replica.reportedAtMs);
      const book = this.#books.get(key);
      if (book === undefined)
        this.#books.set(key, new ReplicaBook(replica, { reportedAtMs, nowMs, joined }, this.#settings));
      else if (book.update(replica, reportedAtMs, nowMs)) emptied.push(key);
    }
    for (const [key, book] of this.#books) {
      if (named.has(key)) continue;
      emptied.push(key);
      if (book.claims === 0) this.#books.delete(key);
      else book.leave();
    }
    return emptied;
  }

  /** Forgets a replica that the fleet forgot, once its last claim has ended. */
  dropIfGone(key: string): void {
    const book = this.#books.get(key);
    if (book !== undefined && book.gone && book.claims === 0) this.#books.delete(key);
  }

  #typicalSpeed(): number {
    let work = 0;
    let ms = 0;
    for (const { measured } of this.#books.values()) {
      work += measured.work;
      ms += measured.ms;
    }
    return work > 0 && ms > 0 ? (work * 1_000) / ms : ASSUMED_SPEED;
  }
}

export function replicaStats(candidate: Candidate): ReplicaStats {
  const { key, usable, slots, ownInFlight, othersInFlight, waiting, kvUse, reportAgeMs } = candidate;
  return { replica: key, usable, slots, inFlight: ownInFlight, othersInFlight, waiting, kvUse, reportAgeMs };
}
