import { TransientMap } from "../../shared/transient-map.ts";
import type { ClaimResult, ReplicaDigest, SettleRequest } from "../ports/coordinator.ts";
import type { Candidate } from "../routing/candidate.ts";
import { PaceMeter } from "../routing/pace.ts";
import { Breaker } from "./breaker.ts";
import type { AdmissionSettings } from "./settings.ts";

/** How long a replica that pushed back without saying for how long is left alone. */
const DEFAULT_BUSY_MS = 1_000;
/** A machine that joined others just now gets this share of its weight at first, and all of it after the window. */
const COLD_SHARE = 0.1;
const WARM_UP_MS = 30_000;
/** What is left of a measure after each further request. */
const KEPT = 0.95;
/** Seconds of work that a machine must have shown before its own speed says as much as that of its pool. */
const CONVINCING_SECONDS = 5;

/** What a claim is expected to cost, and when it was made. */
export interface ClaimCost {
  /** Prompt and completion, as KV cells are used. */
  readonly tokens: number;
  readonly work: number;
}

interface BookedClaim extends ClaimCost {
  readonly atMs: number;
}

/** One replica as the owner of its pool knows it: the fleet's last word, our claims, our experience. */
export class ReplicaBook {
  readonly #breaker: Breaker;
  #settings: AdmissionSettings;
  readonly #claims = new TransientMap<string, BookedClaim>();
  #digest: ReplicaDigest;
  #reportedAtMs: number | null;
  #othersInFlight: number | null = null;
  #gone = false;
  #busyUntilMs = 0;
  #warmFromMs: number;
  #ownWork = 0;
  /** Tokens of claims made since the last report, which therefore does not show them. */
  #unreportedTokens = 0;
  /** Most claims held at once since the last report. */
  #mostClaims = 0;
  #measuredWork = 0;
  #measuredMs = 0;
  #pace = new PaceMeter();

  /** `joined`: others were there before it, so it starts cold beside them. */
  constructor(
    digest: ReplicaDigest,
    heard: { readonly reportedAtMs: number | null; readonly nowMs: number; readonly joined: boolean },
    settings: AdmissionSettings,
  ) {
    this.#settings = settings;
    this.#breaker = new Breaker(settings);
    this.#digest = digest;
    this.#reportedAtMs = null;
    this.#warmFromMs = heard.joined ? heard.nowMs + WARM_UP_MS : 0;
    this.#hear(digest, heard.reportedAtMs, true);
  }

  reconfigure(settings: AdmissionSettings): void {
    this.#settings = settings;
    this.#breaker.reconfigure(settings);
  }

  get digest(): ReplicaDigest {
    return this.#digest;
  }

  get claims(): number {
    return this.#claims.size;
  }

  get breaker(): Breaker {
    return this.#breaker;
  }

  get usable(): boolean {
    return this.#digest.ready && !this.#digest.draining && !this.#gone;
  }

  /** True where what the machine had cached is gone: its process is another, or it loaded anew. */
  update(digest: ReplicaDigest, reportedAtMs: number | null, nowMs: number): boolean {
    const restarted = digest.target.epoch !== this.#digest.target.epoch;
    const loaded = restarted || (digest.ready && !this.#digest.ready);
    if (restarted) {
      // A restarted process starts with a clean record.
      this.#breaker.reset();
      this.#busyUntilMs = 0;
      this.#pace = new PaceMeter();
    }
    if (loaded) this.#warmFromMs = nowMs + WARM_UP_MS;
    this.#gone = false;
    this.#hear(digest, reportedAtMs, digest.reportedAtMs !== this.#digest.reportedAtMs);
    return loaded;
  }

  /** The fleet does not name it any more. Its claims still run out. */
  leave(): void {
    this.#gone = true;
  }

  get gone(): boolean {
    return this.#gone;
  }

  claim(claimId: string, cost: ClaimCost, nowMs: number): void {
    this.#claims.set(claimId, { tokens: cost.tokens, work: cost.work, atMs: nowMs });
    this.#ownWork += cost.work;
    this.#unreportedTokens += cost.tokens;
    this.#mostClaims = Math.max(this.#mostClaims, this.#claims.size);
    this.#breaker.claimed(claimId, nowMs);
  }

  /** `work` is what was really done, where it is known: it measures the machine's speed. */
  release(
    claimId: string,
    ended: {
      readonly result: ClaimResult;
      readonly busyForMs?: number | undefined;
      readonly work: number | null;
      readonly pace?: SettleRequest["pace"] | undefined;
    },
    nowMs: number,
  ): void {
    const claim = this.#claims.take(claimId);
    if (claim === undefined) return;
    this.#ownWork = this.#claims.size === 0 ? 0 : this.#ownWork - claim.work;
    if (this.#reportedAtMs === null || claim.atMs > this.#reportedAtMs)
      this.#unreportedTokens = Math.max(0, this.#unreportedTokens - claim.tokens);
    this.#breaker.released(claimId, claim.atMs, ended.result, nowMs);
    if (ended.result === "back_pressure")
      this.#busyUntilMs = Math.max(this.#busyUntilMs, nowMs + (ended.busyForMs ?? DEFAULT_BUSY_MS));
    if (ended.pace !== undefined && this.#isPromised) this.#pace.add(ended.pace, nowMs);
    if (ended.result === "answered" && ended.work !== null && nowMs > claim.atMs) {
      this.#measuredWork = KEPT * this.#measuredWork + ended.work;
      this.#measuredMs = KEPT * this.#measuredMs + (nowMs - claim.atMs);
    }
  }

  /** Where nothing was promised nobody asks how long streams take. */
  get #isPromised(): boolean {
    const { ttftMs, tpotMs } = this.#settings.policy.slo;
    return ttftMs !== null || tpotMs !== null;
  }

  /** From when on it may be chosen again, if it pushed back or was ejected. */
  availableFromMs(nowMs: number): number {
    return Math.max(this.#busyUntilMs, this.#breaker.openUntilMs(nowMs));
  }

  /** The next moment at which this replica may look better without any news. */
  nextChangeMs(nowMs: number): number {
    const staleAt = this.#reportedAtMs === null ? 0 : this.#reportedAtMs + this.#settings.staleAfterMs + 1;
    const times = [this.#busyUntilMs, this.#breaker.openUntilMs(nowMs), staleAt].filter((at) => at > nowMs);
    return Math.min(Infinity, ...times);
  }

  /** Work tokens that its slots did lately, and the time they took. */
  get measured(): { readonly work: number; readonly ms: number } {
    return { work: this.#measuredWork, ms: this.#measuredMs };
  }

  /** `typicalSpeed`: work tokens a second of a slot in this pool, for as long as the machine has shown little itself. */
  candidate(nowMs: number, typicalSpeed: number): Candidate {
    const { target, slots, capabilities, saes, lacks = [], contextLength, weight, priority } = this.#digest;
    return {
      key: target.key,
      kind: target.kind,
      usable: this.usable,
      slots,
      ownInFlight: this.#claims.size,
      othersInFlight: this.#othersInFlight,
      waiting: this.#waiting(),
      kvUse: this.#kvUse(),
      ownWork: this.#ownWork,
      workPerSecond: this.#speedOfSlot(typicalSpeed) * Math.max(1, slots),
      warmth: this.#warmth(nowMs),
      reportAgeMs: this.#reportedAtMs === null ? null : nowMs - this.#reportedAtMs,
      capabilities,
      saes,
      lacks,
      contextLength,
      pace: this.#isPromised ? this.#pace.at(nowMs) : null,
      weight,
      priority,
      busyUntilMs: this.#busyUntilMs,
      ejectedUntilMs: this.#breaker.openUntilMs(nowMs),
      probing: this.#breaker.probing,
    };
  }

  /** A report may be told several times; only the first time is `isNews`. */
  #hear(digest: ReplicaDigest, reportedAtMs: number | null, isNews: boolean): void {
    this.#digest = digest;
    if (!isNews) return;
    this.#reportedAtMs = reportedAtMs;
    const { reportedInFlight, reportedInFlightOfThisEdge } = digest;
    // A server that does not tell edges apart counted ours too, those included that ended while it was asked.
    const own = reportedInFlightOfThisEdge ?? this.#mostClaims;
    this.#othersInFlight = reportedInFlight === null ? null : Math.max(0, reportedInFlight - own);
    this.#mostClaims = this.#claims.size;
    this.#unreportedTokens = 0;
    for (const { tokens, atMs } of this.#claims.values())
      if (reportedAtMs === null || atMs > reportedAtMs) this.#unreportedTokens += tokens;
  }

  #waiting(): number {
    const { waiting, reportedInFlightOfThisEdge } = this.#digest;
    const ended = Math.max(0, (reportedInFlightOfThisEdge ?? 0) - this.#claims.size);
    return Math.max(0, waiting - ended);
  }

  #kvUse(): number | null {
    const { target, freeKvCells, totalKvCells } = this.#digest;
    if (totalKvCells <= 0) return null;
    // Of other servers only the share is known, not their cells.
    const sent = target.kind === "host" ? this.#unreportedTokens : 0;
    return Math.min(1, Math.max(0, (totalKvCells - freeKvCells + sent) / totalKvCells));
  }

  #speedOfSlot(typicalSpeed: number): number {
    const work = this.#measuredWork + typicalSpeed * CONVINCING_SECONDS;
    return work / (this.#measuredMs / 1_000 + CONVINCING_SECONDS);
  }

  #warmth(nowMs: number): number {
    const leftMs = this.#warmFromMs - nowMs;
    return leftMs <= 0 ? 1 : Math.max(COLD_SHARE, 1 - leftMs / WARM_UP_MS);
  }
}
