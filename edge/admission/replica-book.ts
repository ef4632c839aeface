import type { ClaimResult, ReplicaDigest } from "../ports/coordinator.ts";
import type { Candidate } from "../routing/candidate.ts";
import type { AdmissionSettings } from "./settings.ts";

/** How long a replica that pushed back without saying for how long is left alone. */
const DEFAULT_BUSY_MS = 1_000;

/** One replica as the owner of its pool knows it: the fleet's last word, our claims, our experience. */
export class ReplicaBook {
  readonly #settings: AdmissionSettings;
  readonly #claims = new Set<string>();
  #digest: ReplicaDigest;
  #reportedAtMs: number | null;
  #gone = false;
  #failures = 0;
  #ejectedUntilMs = 0;
  #busyUntilMs = 0;

  constructor(digest: ReplicaDigest, reportedAtMs: number | null, settings: AdmissionSettings) {
    this.#digest = digest;
    this.#reportedAtMs = reportedAtMs;
    this.#settings = settings;
  }

  get digest(): ReplicaDigest {
    return this.#digest;
  }

  get claims(): number {
    return this.#claims.size;
  }

  /** A restarted process starts with a clean record. */
  update(digest: ReplicaDigest, reportedAtMs: number | null): void {
    if (digest.target.epoch !== this.#digest.target.epoch) {
      this.#failures = 0;
      this.#ejectedUntilMs = 0;
      this.#busyUntilMs = 0;
    }
    this.#digest = digest;
    this.#reportedAtMs = reportedAtMs;
    this.#gone = false;
  }

  /** The fleet does not name it any more. Its claims still run out. */
  leave(): void {
    this.#gone = true;
  }

  get gone(): boolean {
    return this.#gone;
  }

  claim(claimId: string): void {
    this.#claims.add(claimId);
  }

  release(claimId: string, result: ClaimResult, busyForMs: number | undefined, nowMs: number): void {
    this.#claims.delete(claimId);
    switch (result) {
      case "answered":
        this.#failures = 0;
        this.#ejectedUntilMs = 0;
        return;
      case "failed":
        this.#failures++;
        if (this.#failures < this.#settings.failureThreshold) return;
        this.#ejectedUntilMs = nowMs + this.#settings.cooldownMs;
        this.#failures = this.#settings.failureThreshold - 1;
        return;
      case "back_pressure":
        this.#busyUntilMs = Math.max(this.#busyUntilMs, nowMs + (busyForMs ?? DEFAULT_BUSY_MS));
        return;
      case "cancelled":
        return;
      default:
        result satisfies never;
    }
  }

  /** From when on it may be chosen again, if it pushed back or was ejected. */
  get availableFromMs(): number {
    return Math.max(this.#busyUntilMs, this.#ejectedUntilMs);
  }

  /** The next moment at which this replica may look better without any news. */
  nextChangeMs(nowMs: number): number {
    const staleAt = this.#reportedAtMs === null ? 0 : this.#reportedAtMs + this.#settings.staleAfterMs + 1;
    const times = [this.#busyUntilMs, this.#ejectedUntilMs, staleAt].filter((at) => at > nowMs);
    return Math.min(Infinity, ...times);
  }

  candidate(nowMs: number): Candidate {
    const { target, ready, draining, reportedInFlight, reportedInFlightOfThisEdge } = this.#digest;
    return {
      key: target.key,
      kind: target.kind,
      usable: ready && !draining && !this.#gone,
      slots: this.#digest.slots,
      ownInFlight: this.#claims.size,
      othersInFlight:
        reportedInFlight === null ? null : Math.max(0, reportedInFlight - (reportedInFlightOfThisEdge ?? 0)),
      waiting: this.#digest.waiting,
      reportAgeMs: this.#reportedAtMs === null ? null : nowMs - this.#reportedAtMs,
      capabilities: this.#digest.capabilities,
      saes: this.#digest.saes,
      weight: this.#digest.weight,
      priority: this.#digest.priority,
      busyUntilMs: this.#busyUntilMs,
      ejectedUntilMs: this.#ejectedUntilMs,
    };
  }
}
