import type {
  AdmitRequest,
  GrantReason,
  PoolDigest,
  PoolStats,
  Pressure,
  QueueProspect,
  ReplicaTarget,
  SettleRequest,
} from "../ports/coordinator.ts";
import { inFlightOf, type Candidate } from "../routing/candidate.ts";
import { choose, servable, type NotServable, type PickHints, type PickState, type Servable } from "../routing/pick.ts";
import { PrefixIndex } from "../routing/prefix-index.ts";
import { workOf } from "../routing/score.ts";
import type { AdmissionEntry, BandQueue, Lane } from "./band-queue.ts";
import { Claims, type HeldClaim } from "./claims.ts";
import { DrainRate, retryAfterSeconds } from "./drain-rate.ts";
import { grantReason } from "./grant-reason.ts";
import { PoolReplicas, replicaStats } from "./pool-replicas.ts";
import { exceededContext, keyOf, requirementOf } from "./requirement.ts";
import { poolSaturation } from "./saturation.ts";
import type { AdmissionSettings } from "./settings.ts";
import { WaitingQueue } from "./waiting-queue.ts";

/** How a claim ended, and what its attempt used and took where that is known. */
interface EndedClaim extends Pick<SettleRequest, "result"> {
  readonly busyForMs?: SettleRequest["busyForMs"] | undefined;
  readonly tokens?: SettleRequest["tokens"] | undefined;
  readonly pace?: SettleRequest["pace"] | undefined;
}

export type AdmissionEvent =
  /** `wallNowMs` turns the wall time of first arrival into an age, which no step of a clock can spoil later. */
  | { readonly kind: "admit"; readonly request: AdmitRequest; readonly wallNowMs: number }
  | ({ readonly kind: "settle"; readonly claimId: string } & EndedClaim)
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
      readonly why: GrantReason;
    }
  | { readonly kind: "cancelled" }
  | {
      readonly kind: "refused";
      readonly code: "queue_full" | "queue_timeout" | "no_replica_available";
      readonly retryAfterSeconds: number;
    }
  | { readonly kind: "sae_not_available"; readonly available: readonly string[] }
  | { readonly kind: "context_exceeded"; readonly contextLength: number }
);

/** Taken as the time that one slot takes for a request, in a pool that has not given back any yet. */
const UNKNOWN_INTERVAL_MS = 2_000;
/** A hedge is made only while the pool is less full than this. */
const HEDGE_CEILING = 1 / 3;
/** A generated token weighs this much of a read one between projects. */
const OUTPUT_WEIGHT = 2;

/**
 * Who may go where in one pool: bands by priority, ceiling and promise, projects by fairness, claims that never exceed
 * a replica's slots, breakers. Pure: it reads no clock and does no I/O; events and the time go in, decisions come
 * out. Times are monotonic.
 */
export class PoolAdmission {
  readonly #pool: string;
  #settings: AdmissionSettings;
  readonly #queue: WaitingQueue;
  readonly #replicas: PoolReplicas;
  readonly #prefixes: PrefixIndex;
  readonly #claims = new Claims();
  readonly #drain = new DrainRate();
  #turn = 0;

  constructor(pool: string, settings: AdmissionSettings) {
    this.#pool = pool;
    this.#settings = settings;
    this.#queue = new WaitingQueue(settings.bands);
    this.#replicas = new PoolReplicas(settings);
    this.#prefixes = new PrefixIndex(settings.prefix);
  }

  /** From the next event on: queues, claims, breakers and what is known of prompts stay. */
  reconfigure(settings: AdmissionSettings): void {
    this.#settings = settings;
    this.#queue.reconfigure(settings.bands);
    this.#replicas.reconfigure(settings);
    this.#prefixes.reconfigure(settings.prefix);
  }

  handle(event: AdmissionEvent, nowMs: number): readonly AdmissionDecision[] {
    this.#observe(nowMs);
    for (const claim of this.#claims.takeExpired(nowMs)) this.#ended(claim, { result: "cancelled" }, nowMs);
    const decisions: AdmissionDecision[] = [];
    switch (event.kind) {
      case "admit":
        // The same attempt again: the claim that it may have got was lost on the way, and nobody will settle it.
        this.#settle(`${event.request.requestId}.${event.request.attempt}`, { result: "cancelled" }, nowMs);
        this.#enqueue(event.request, nowMs - Math.max(0, event.wallNowMs - event.request.arrivedAtMs), {
          nowMs,
          decisions,
        });
        break;
      case "settle":
        this.#settle(event.claimId, event, nowMs);
        break;
      case "cancel":
        if (this.#queue.remove(event.requestId) !== undefined)
          decisions.push({ kind: "cancelled", requestId: event.requestId });
        break;
      case "renew":
        for (const claimId of event.claimIds) this.#claims.renew(claimId, nowMs + this.#settings.claimTtlMs);
        break;
      case "update":
        for (const key of this.#replicas.update(event.digest, event.wallNowMs, nowMs)) this.#prefixes.forget(key);
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
    let next = this.#claims.nextExpiryMs;
    if (this.#queue.size > 0) {
      for (const band of this.#queue.bands) {
        for (const lane of band.lanes()) next = Math.min(next, this.#deadlineOf(lane, band));
        const trickleAtMs = band.trickleAtMs();
        if (trickleAtMs > nowMs) next = Math.min(next, trickleAtMs);
      }
      for (const book of this.#replicas.all()) next = Math.min(next, book.nextChangeMs(nowMs));
    }
    return next === Infinity ? null : next;
  }

  /** Nothing is held, waited for or known: the state can be forgotten. */
  get idle(): boolean {
    return this.#queue.size === 0 && this.#claims.size === 0 && this.#replicas.size === 0;
  }

  stats(nowMs: number): PoolStats {
    const candidates = this.#replicas.candidates(nowMs);
    const slots = candidates.reduce((sum, { usable, slots: own }) => sum + (usable ? own : 0), 0);
    const bands = this.#queue.bands.map((band) => [band.settings.name, band] as const);
    return {
      pool: this.#pool,
      inFlight: this.#claims.size,
      queueDepthByBand: Object.fromEntries(bands.map(([name, { size }]) => [name, size])),
      queueBytesByBand: Object.fromEntries(bands.map(([name, { bytes }]) => [name, bytes])),
      oldestWaitMsByBand: Object.fromEntries(
        bands.map(([name, band]) => [name, Math.max(0, nowMs - (band.oldest()?.arrivedAtMs ?? nowMs))]),
      ),
      breakers: this.#replicas.breakers(nowMs),
      saturation: poolSaturation(candidates, this.#settings, nowMs) + this.#queue.size / Math.max(1, slots),
      replicas: candidates.map(replicaStats),
    };
  }

  pressure(bandName: string, nowMs: number): Pressure {
    const { size, settings } = this.#queue.bandOf(bandName);
    const saturation = poolSaturation(this.#replicas.candidates(nowMs), this.#settings, nowMs);
    return { band: bandName, saturation, ceiling: settings.saturationCeiling, waiting: size };
  }

  prospect(requestId: string): QueueProspect | null {
    const entry = this.#queue.get(requestId);
    if (entry === undefined) return null;
    const { place, waitMs } = this.#queue.prospectOf(entry);
    const { intervalMs } = this.#drain;
    return { place, waitMs: waitMs ?? (intervalMs === null ? null : intervalMs * place) };
  }

  /** Time passes for what is measured by time. */
  #observe(nowMs: number): void {
    this.#drain.observe(nowMs, this.#claims.size > 0);
    for (const band of this.#queue.bands) band.drain.observe(nowMs, band.size > 0);
  }

  #enqueue(
    request: AdmitRequest,
    arrivedAtMs: number,
    { nowMs, decisions }: { readonly nowMs: number; readonly decisions: AdmissionDecision[] },
  ): void {
    const { requestId, project } = request;
    if (this.#queue.remove(requestId) !== undefined) decisions.push({ kind: "cancelled", requestId });
    const needsLook = request.context !== undefined || request.hedge === true;
    const candidates = needsLook ? this.#replicas.candidates(nowMs) : [];
    const contextLength = exceededContext(request, candidates);
    if (contextLength !== null) {
      decisions.push({ kind: "context_exceeded", requestId, contextLength });
      return;
    }
    const requirement = requirementOf(request, candidates);
    const entry = { request, arrivedAtMs, enqueuedAtMs: nowMs, requirement };
    if (request.hedge === true) {
      this.#hedge(entry, candidates, nowMs, decisions);
      return;
    }
    const band = this.#queue.bandOf(request.band);
    if (this.#settings.enabled && !this.#makeRoom(band, request, nowMs, decisions)) {
      const retryAfter = this.#comeBack(band, project, nowMs);
      decisions.push({ kind: "refused", requestId, code: "queue_full", retryAfterSeconds: retryAfter });
      return;
    }
    if (this.#queue.size === 0 && this.#admitAtOnce(entry, band, nowMs, decisions)) return;
    this.#queue.add({ ...entry, requirementKey: keyOf(requirement) }, nowMs);
  }

  /** Where nobody waits there is nothing to put in order: it goes, if it may, without a place in the queue. */
  #admitAtOnce(entry: AdmissionEntry, band: BandQueue, nowMs: number, decisions: AdmissionDecision[]): boolean {
    const candidates = this.#replicas.candidates(nowMs);
    const saturation = poolSaturation(candidates, this.#settings, nowMs);
    if (this.#gatedBy(saturation, candidates) >= band.settings.saturationCeiling) return false;
    const found = servable(candidates, entry.requirement, this.#pickState(nowMs));
    if (found.kind !== "servable") return false;
    band.lift(entry.request.project, nowMs);
    return this.#serveEntry(entry, { candidates, saturation, found }, nowMs, decisions) !== null;
  }

  /** At once or not at all: a second machine for a request must not be in the way of a first one for another. */
  #hedge(entry: AdmissionEntry, candidates: readonly Candidate[], nowMs: number, decisions: AdmissionDecision[]): void {
    const saturation = poolSaturation(candidates, this.#settings, nowMs);
    if (this.#queue.size === 0 && saturation < HEDGE_CEILING) {
      const found = servable(candidates, entry.requirement, this.#pickState(nowMs));
      if (this.#serveEntry(entry, { candidates, saturation, found }, nowMs, decisions) !== null) return;
    }
    const { requestId } = entry.request;
    decisions.push({ kind: "refused", requestId, code: "no_replica_available", retryAfterSeconds: 1 });
  }

  /**
   * Whether the band has a place for one more. Places that were promised to clients that come back about now are kept
   * for them; a project that holds more than its share of a full queue gives up its newest request.
   */
  #makeRoom(band: BandQueue, request: AdmitRequest, nowMs: number, decisions: AdmissionDecision[]): boolean {
    const { queueCapacityRequests, queueCapacityBytes } = band.settings;
    const { project, bodyBytes, returning } = request;
    if (band.bytes + bodyBytes > queueCapacityBytes) return false;
    const left = queueCapacityRequests - band.size;
    if (left > 0 && returning !== false && band.returns.take(project, nowMs)) return true;
    if (left > band.returns.kept(nowMs, queueCapacityRequests)) return true;
    const dispensable = band.dispensableFor(project);
    if (dispensable === null) return false;
    const { requestId } = dispensable.request;
    this.#queue.remove(requestId);
    decisions.push({
      kind: "refused",
      requestId,
      code: "queue_full",
      retryAfterSeconds: this.#comeBack(band, dispensable.request.project, nowMs),
    });
    return true;
  }

  #serve(nowMs: number, decisions: AdmissionDecision[]): void {
    if (this.#queue.size === 0) return;
    let candidates = this.#replicas.candidates(nowMs);
    const { blocked, found } = this.#look(candidates, nowMs, decisions);
    const isBlocked = (requirementKey: string): boolean => blocked.has(requirementKey);
    while (this.#queue.size > 0) {
      const saturation = poolSaturation(candidates, this.#settings, nowMs);
      const entry = this.#queue.next(isBlocked, this.#gatedBy(saturation, candidates), nowMs);
      if (entry === null) return;
      // What was found at the first look holds until the first grant.
      const looked = found.get(entry.requirementKey);
      const servableNow = looked ?? servable(candidates, entry.requirement, this.#pickState(nowMs));
      const key = this.#serveEntry(entry, { candidates, saturation, found: servableNow }, nowMs, decisions);
      if (key === null) {
        blocked.add(entry.requirementKey);
      } else if (this.#queue.size > 0) {
        found.clear();
        candidates = this.#replicas.refreshed(candidates, key, nowMs);
      }
    }
  }

  /** Grants it the best machine that has room, and says which; null when there is none. */
  #serveEntry(
    entry: AdmissionEntry,
    look: { readonly candidates: readonly Candidate[]; readonly saturation: number; readonly found: Servable },
    nowMs: number,
    decisions: AdmissionDecision[],
  ): string | null {
    const { candidates, saturation, found } = look;
    const { request, arrivedAtMs } = entry;
    const { inputTokens, outputTokens, session, prefix, band } = request;
    if (found.kind !== "servable") return null;
    const hints: PickHints = {
      scored: {
        work: workOf(inputTokens, outputTokens),
        outputTokens,
        waitedMs: Math.max(0, nowMs - arrivedAtMs),
      },
      affinity: { session, matched: this.#prefixes.match(prefix, nowMs) },
    };
    const choice = choose(found.free, candidates, hints, this.#pickState(nowMs));
    if (choice === null) return null;
    const ceiling = this.#queue.bandOf(band).settings.saturationCeiling;
    const why = grantReason({ band, saturation, ceiling, free: found.free, hints, prefix, choice }, this.#settings);
    this.#grant(entry, { key: choice.key, why }, nowMs, decisions);
    return choice.key;
  }

  /** Asks once for each kind of requirement what can serve it. Those that wait on are blocked for this round. */
  #look(
    candidates: readonly Candidate[],
    nowMs: number,
    decisions: AdmissionDecision[],
  ): { readonly blocked: Set<string>; readonly found: Map<string, Servable> } {
    const state = this.#pickState(nowMs);
    const known = new Map<string, Servable>();
    const blocked = new Set<string>();
    for (const band of this.#queue.bands) {
      for (const lane of band.lanes()) {
        const [head] = lane.entries;
        if (head === undefined) continue;
        const found = known.get(lane.requirementKey) ?? servable(candidates, head.requirement, state);
        known.set(lane.requirementKey, found);
        const noMachine = found.kind === "none" && found.why === "no_machine";
        if (lane.noMachine !== noMachine) {
          lane.noMachine = noMachine;
          lane.sinceMs = nowMs;
        }
        if (found.kind === "servable") continue;
        blocked.add(lane.requirementKey);
        this.#refuseIfHopeless(lane, found, nowMs, decisions);
      }
    }
    return { blocked, found: known };
  }

  /** What the bands' ceilings are held against. */
  #gatedBy(saturation: number, candidates: readonly Candidate[]): number {
    if (!this.#settings.enabled) return -1;
    // With nothing in flight nothing would ever come to an end that could lower it.
    return candidates.every((candidate) => inFlightOf(candidate, this.#settings) === 0) ? -1 : saturation;
  }

  #pickState(nowMs: number): PickState {
    return { nowMs, turn: this.#turn, settings: this.#settings, ignoreRoom: !this.#settings.enabled };
  }

  #grant(
    entry: AdmissionEntry,
    { key: replicaKey, why }: { readonly key: string; readonly why: GrantReason },
    nowMs: number,
    decisions: AdmissionDecision[],
  ): void {
    const book = this.#replicas.get(replicaKey);
    if (book === undefined) return;
    const { requestId, attempt, project, band: bandName, inputTokens, outputTokens, prefix } = entry.request;
    const claimId = `${requestId}.${attempt}`;
    const charged = inputTokens + OUTPUT_WEIGHT * outputTokens;
    this.#turn++;
    this.#queue.remove(requestId);
    this.#queue.granted(entry, charged, nowMs);
    this.#claims.add({
      claimId,
      replicaKey,
      band: bandName,
      project,
      prefix,
      charged,
      chargedAtMs: nowMs,
      expiresAtMs: nowMs + this.#settings.claimTtlMs,
    });
    book.claim(claimId, { tokens: inputTokens + outputTokens, work: workOf(inputTokens, outputTokens) }, nowMs);
    this.#prefixes.learn(prefix, replicaKey, nowMs);
    decisions.push({
      kind: "granted",
      requestId,
      claimId,
      target: book.digest.target,
      queuedMs: Math.max(0, nowMs - entry.arrivedAtMs),
      why,
    });
  }

  #refuseIfHopeless(lane: Lane, found: NotServable, nowMs: number, decisions: AdmissionDecision[]): void {
    // Both may pass, and where there is a queue they are waited for.
    if (this.#settings.enabled && (found.why === "no_machine" || found.why === "busy")) return;
    for (const { request } of lane.entries.slice()) {
      const { requestId } = request;
      this.#queue.remove(requestId);
      if (found.why === "no_sae") {
        decisions.push({ kind: "sae_not_available", requestId, available: found.available });
        continue;
      }
      const tried = request.excludedReplicas.flatMap((key) => this.#replicas.get(key) ?? []);
      const waits = tried.map((book) => Math.max(0, book.availableFromMs(nowMs) - nowMs));
      decisions.push({
        kind: "refused",
        requestId,
        code: "no_replica_available",
        retryAfterSeconds: this.#seconds(waits.length === 0 ? 0 : Math.min(...waits)),
      });
    }
  }

  /**
   * A wait with a machine and a wait without one have each a limit of their own, counted from when that began, so that
   * nobody is refused at the moment a machine appears; the two together bound every wait.
   */
  #deadlineOf(lane: Lane, { settings }: BandQueue): number {
    const [head] = lane.entries;
    if (head === undefined) return Infinity;
    const { noMachineTtlMs } = this.#settings;
    // Who never saw the other state counts from arrival, however long ago that was.
    const saturatedFromMs = head.enqueuedAtMs < lane.sinceMs ? lane.sinceMs : head.arrivedAtMs;
    const ownMs =
      lane.noMachine === true
        ? Math.max(head.arrivedAtMs, lane.sinceMs) + noMachineTtlMs
        : saturatedFromMs + settings.queueTtlMs;
    return Math.min(ownMs, head.arrivedAtMs + settings.queueTtlMs + noMachineTtlMs);
  }

  #refuseExpired(nowMs: number, decisions: AdmissionDecision[]): void {
    if (this.#queue.size === 0) return;
    for (const band of this.#queue.bands) {
      for (const lane of band.lanes()) {
        while (this.#deadlineOf(lane, band) <= nowMs) {
          const [head] = lane.entries;
          if (head === undefined) break;
          const { requestId } = head.request;
          this.#queue.remove(requestId);
          decisions.push(
            lane.noMachine === true
              ? {
                  kind: "refused",
                  requestId,
                  code: "no_replica_available",
                  retryAfterSeconds: this.#seconds(this.#settings.noMachineTtlMs),
                }
              : {
                  kind: "refused",
                  requestId,
                  code: "queue_timeout",
                  retryAfterSeconds: this.#comeBack(band, lane.project, nowMs),
                },
          );
        }
      }
    }
  }

  /**
   * When the band will have a place for one more, by its drain rate: a quarter of its queue must be gone, so that a few
   * that come back in the same second all find room.
   */
  #comeBack(band: BandQueue, project: string, nowMs: number): number {
    const intervalMs = band.drain.intervalMs ?? this.#drain.intervalMs ?? UNKNOWN_INTERVAL_MS / this.#replicas.slots;
    return band.returns.give(project, {
      nowMs,
      waitMs: intervalMs * (Math.ceil(band.size / 4) + 1),
      intervalMs,
      maxSeconds: this.#settings.maxRetryAfterSeconds,
    });
  }

  #settle(claimId: string, ended: EndedClaim, nowMs: number): void {
    const claim = this.#claims.take(claimId);
    if (claim !== undefined) this.#ended(claim, ended, nowMs);
  }

  #ended(claim: HeldClaim, ended: EndedClaim, nowMs: number): void {
    const { result, busyForMs, tokens, pace } = ended;
    const work =
      tokens === undefined ? null : workOf(tokens.promptTokens - tokens.cachedTokens, tokens.completionTokens);
    this.#replicas.get(claim.replicaKey)?.release(claim.claimId, { result, busyForMs, work, pace }, nowMs);
    this.#replicas.dropIfGone(claim.replicaKey);
    // Nothing proves that it read the prompt, and it must not be preferred for that.
    if (result === "failed") this.#prefixes.unlearn(claim.prefix, claim.replicaKey);
    this.#drain.departed();
    const used = tokens === undefined ? null : tokens.promptTokens + OUTPUT_WEIGHT * tokens.completionTokens;
    // Without a count what was charged stays, except where nothing was done.
    const owed = used ?? (result === "back_pressure" || result === "refused" ? 0 : claim.charged);
    this.#queue.bandOf(claim.band).work.correct(claim.project, owed - claim.charged, claim.chargedAtMs, nowMs);
  }

  #seconds(waitMs: number): number {
    return retryAfterSeconds(waitMs, this.#settings.maxRetryAfterSeconds);
  }
}
