import type { AdmitRequest, ClaimResult, PoolDigest, PoolStats, ReplicaTarget } from "../ports/coordinator.ts";
import { inFlightOf, type Candidate } from "../routing/candidate.ts";
import { pick, type Pick } from "../routing/pick.ts";
import { DrainRate, retryAfterSeconds } from "./drain-rate.ts";
import { ReplicaBook } from "./replica-book.ts";
import type { AdmissionSettings } from "./settings.ts";
import { WaitingQueue, type WaitingEntry } from "./waiting-queue.ts";

export type AdmissionEvent =
  /** `wallNowMs` turns the wall time of first arrival into an age, which no step of a clock can spoil later. */
  | { readonly kind: "admit"; readonly request: AdmitRequest; readonly wallNowMs: number }
  | {
      readonly kind: "settle";
      readonly claimId: string;
      readonly result: ClaimResult;
      readonly busyForMs?: number | undefined;
    }
  | { readonly kind: "cancel"; readonly requestId: string }
  | { readonly kind: "renew"; readonly claimIds: readonly string[] }
  | { readonly kind: "update"; readonly digest: PoolDigest; readonly wallNowMs: number }
  | { readonly kind: "tick" };

/** Exactly one for every admit, now or later. */
export type AdmissionDecision = { readonly requestId: string } & (
  | {
      readonly kind: "granted";
      readonly claimId: string;
      readonly target: ReplicaTarget;
      readonly queuedMs: number;
    }
  | { readonly kind: "cancelled" }
  | {
      readonly kind: "refused";
      readonly code: "queue_full" | "queue_timeout" | "no_replica_available";
      readonly retryAfterSeconds: number;
    }
  | { readonly kind: "sae_not_available"; readonly available: readonly string[] }
);

interface HeldClaim {
  readonly replicaKey: string;
  expiresAtMs: number;
}

/** Retry-After of a full queue that has not given back a single slot yet. */
const UNKNOWN_WAIT_MS = 5_000;

/**
 * Who may go where in one pool: a bounded first-come queue, claims that never exceed a replica's slots, breakers.
 * Pure: it reads no clock and does no I/O; events and the time go in, decisions come out. Times are monotonic.
 */
export class PoolAdmission {
  readonly #pool: string;
  readonly #settings: AdmissionSettings;
  readonly #queue = new WaitingQueue();
  readonly #replicas = new Map<string, ReplicaBook>();
  readonly #claims = new Map<string, HeldClaim>();
  readonly #drain = new DrainRate();
  #turn = 0;

  constructor(pool: string, settings: AdmissionSettings) {
    this.#pool = pool;
    this.#settings = settings;
  }

  handle(event: AdmissionEvent, nowMs: number): readonly AdmissionDecision[] {
    this.#releaseExpiredClaims(nowMs);
    const decisions: AdmissionDecision[] = [];
    switch (event.kind) {
      case "admit":
        // The same attempt again: the claim that it may have got was lost on the way, and nobody will settle it.
        this.#release(`${event.request.requestId}.${event.request.attempt}`, "cancelled", undefined, nowMs);
        this.#enqueue(event.request, nowMs - Math.max(0, event.wallNowMs - event.request.arrivedAtMs), decisions);
        break;
      case "settle":
        this.#release(event.claimId, event.result, event.busyForMs, nowMs);
        break;
      case "cancel":
        if (this.#queue.remove(event.requestId) !== undefined)
          decisions.push({ kind: "cancelled", requestId: event.requestId });
        break;
      case "renew":
        for (const claimId of event.claimIds) {
          const claim = this.#claims.get(claimId);
          if (claim !== undefined) claim.expiresAtMs = nowMs + this.#settings.claimTtlMs;
        }
        break;
      case "update":
        this.#update(event.digest, event.wallNowMs, nowMs);
        break;
      case "tick":
        break;
      default:
        event satisfies never;
    }
    this.#serve(nowMs, decisions);
    this.#refuseExpired(nowMs, decisions);
    return decisions;
  }

  /** When to call `handle` with a tick, at the latest; null when nothing can change by time alone. */
  nextTimerAtMs(nowMs: number): number | null {
    let next = Infinity;
    for (const { expiresAtMs } of this.#claims.values()) next = Math.min(next, expiresAtMs);
    for (const entry of this.#queue.inOrder()) next = Math.min(next, this.#deadlineOf(entry));
    if (this.#queue.size > 0)
      for (const book of this.#replicas.values()) next = Math.min(next, book.nextChangeMs(nowMs));
    return next === Infinity ? null : next;
  }

  /** Nothing is held, waited for or known: the state can be forgotten. */
  get idle(): boolean {
    return this.#queue.size === 0 && this.#claims.size === 0 && this.#replicas.size === 0;
  }

  stats(nowMs: number): PoolStats {
    const usable = this.#candidates(nowMs).filter((candidate) => candidate.usable);
    const slots = usable.reduce((sum, candidate) => sum + candidate.slots, 0);
    const busy = usable.reduce((sum, candidate) => sum + inFlightOf(candidate, this.#settings), 0);
    return {
      pool: this.#pool,
      inFlight: this.#claims.size,
      queueDepthByBand: this.#queue.depthByBand(),
      oldestWaitMsByBand: this.#queue.oldestWaitMsByBand(nowMs),
      saturation: (busy + this.#queue.size) / Math.max(1, slots),
    };
  }

  #candidates(nowMs: number): Candidate[] {
    return [...this.#replicas.values()].map((book) => book.candidate(nowMs));
  }

  #enqueue(request: AdmitRequest, arrivedAtMs: number, decisions: AdmissionDecision[]): void {
    const { requestId, band } = request;
    if (this.#queue.remove(requestId) !== undefined) decisions.push({ kind: "cancelled", requestId });
    const full =
      this.#queue.sizeOf(band) >= this.#settings.queueCapacityRequests ||
      this.#queue.bytesOf(band) + request.bodyBytes > this.#settings.queueCapacityBytes;
    if (full) {
      const waitMs = this.#drain.waitMs(this.#queue.size + 1) ?? UNKNOWN_WAIT_MS;
      decisions.push({ kind: "refused", requestId, code: "queue_full", retryAfterSeconds: this.#seconds(waitMs) });
      return;
    }
    const requirementKey = JSON.stringify([
      request.capability,
      request.saeIds,
      request.needsSomeSae,
      request.excludedReplicas,
    ]);
    this.#queue.add({ request, arrivedAtMs, requirementKey, noMachineSinceMs: null });
  }

  #serve(nowMs: number, decisions: AdmissionDecision[]): void {
    if (this.#queue.size === 0) return;
    const unserved = new Map<string, Pick>();
    let candidates = this.#candidates(nowMs);
    for (const entry of this.#queue.inOrder()) {
      const known = unserved.get(entry.requirementKey);
      const choice = known ?? pick(candidates, entry.request, { nowMs, turn: this.#turn, settings: this.#settings });
      if (choice.kind === "picked") {
        this.#grant(entry, choice.key, nowMs, decisions);
        candidates = this.#candidates(nowMs);
        continue;
      }
      unserved.set(entry.requirementKey, choice);
      this.#keepOrRefuse(entry, choice, nowMs, decisions);
    }
  }

  #grant(entry: WaitingEntry, replicaKey: string, nowMs: number, decisions: AdmissionDecision[]): void {
    const book = this.#replicas.get(replicaKey);
    if (book === undefined) return;
    const { requestId, attempt } = entry.request;
    const claimId = `${requestId}.${attempt}`;
    this.#turn++;
    this.#queue.remove(requestId);
    this.#claims.set(claimId, { replicaKey, expiresAtMs: nowMs + this.#settings.claimTtlMs });
    book.claim(claimId);
    decisions.push({
      kind: "granted",
      requestId,
      claimId,
      target: book.digest.target,
      queuedMs: Math.max(0, nowMs - entry.arrivedAtMs),
    });
  }

  #keepOrRefuse(
    entry: WaitingEntry,
    choice: Exclude<Pick, { kind: "picked" }>,
    nowMs: number,
    decisions: AdmissionDecision[],
  ): void {
    const { requestId } = entry.request;
    switch (choice.why) {
      case "busy":
        entry.noMachineSinceMs = null;
        return;
      case "no_machine":
        entry.noMachineSinceMs ??= nowMs;
        return;
      case "no_sae":
        this.#queue.remove(requestId);
        decisions.push({ kind: "sae_not_available", requestId, available: choice.available });
        return;
      case "no_capability":
      case "all_tried": {
        this.#queue.remove(requestId);
        const tried = entry.request.excludedReplicas.flatMap((key) => this.#replicas.get(key) ?? []);
        const waitMs = Math.min(Infinity, ...tried.map((book) => Math.max(0, book.availableFromMs - nowMs)));
        decisions.push({
          kind: "refused",
          requestId,
          code: "no_replica_available",
          retryAfterSeconds: this.#seconds(waitMs === Infinity ? 0 : waitMs),
        });
        return;
      }
      default:
        choice satisfies never;
    }
  }

  #deadlineOf(entry: WaitingEntry): number {
    const byAge = entry.arrivedAtMs + this.#settings.queueTtlMs;
    if (entry.noMachineSinceMs === null) return byAge;
    return Math.min(byAge, entry.noMachineSinceMs + this.#settings.noMachineTtlMs);
  }

  #refuseExpired(nowMs: number, decisions: AdmissionDecision[]): void {
    let place = 0;
    for (const entry of this.#queue.inOrder()) {
      place++;
      if (this.#deadlineOf(entry) > nowMs) continue;
      const { requestId } = entry.request;
      this.#queue.remove(requestId);
      decisions.push(
        entry.noMachineSinceMs === null
          ? {
              kind: "refused",
              requestId,
              code: "queue_timeout",
              retryAfterSeconds: this.#seconds(this.#drain.waitMs(place) ?? UNKNOWN_WAIT_MS),
            }
          : {
              kind: "refused",
              requestId,
              code: "no_replica_available",
              retryAfterSeconds: this.#seconds(this.#settings.noMachineTtlMs),
            },
      );
    }
  }

  #release(claimId: string, result: ClaimResult, busyForMs: number | undefined, nowMs: number): void {
    const claim = this.#claims.get(claimId);
    if (claim === undefined) return;
    this.#claims.delete(claimId);
    const book = this.#replicas.get(claim.replicaKey);
    book?.release(claimId, result, busyForMs, nowMs);
    if (book !== undefined && book.gone && book.claims === 0) this.#replicas.delete(claim.replicaKey);
    this.#drain.released(nowMs);
  }

  #releaseExpiredClaims(nowMs: number): void {
    for (const [claimId, { expiresAtMs }] of this.#claims)
      if (expiresAtMs <= nowMs) this.#release(claimId, "cancelled", undefined, nowMs);
  }

  #update(digest: PoolDigest, wallNowMs: number, nowMs: number): void {
    const named = new Set<string>();
    for (const replica of digest.replicas) {
      const { key } = replica.target;
      named.add(key);
      const reportedAtMs = replica.reportedAtMs === null ? null : nowMs - Math.max(0, wallNowMs - replica.reportedAtMs);
      const book = this.#replicas.get(key);
      if (book === undefined) this.#replicas.set(key, new ReplicaBook(replica, reportedAtMs, this.#settings));
      else book.update(replica, reportedAtMs);
    }
    for (const [key, book] of this.#replicas) {
      if (named.has(key)) continue;
      if (book.claims === 0) this.#replicas.delete(key);
      else book.leave();
    }
  }

  #seconds(waitMs: number): number {
    return retryAfterSeconds(waitMs, this.#settings.maxRetryAfterSeconds);
  }
}
