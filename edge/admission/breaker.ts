import type { ClaimResult } from "../ports/coordinator.ts";

export interface BreakerSettings {
  readonly failureThreshold: number;
  readonly cooldownMs: number;
}

/** Cool-downs grow no further than this, unless the first one is longer. */
const LONGEST_COOLDOWN_MS = 300_000;

/**
 * Consecutive failures open it; after a cool-down one request probes the machine, and its end decides: answered
 * closes, failed opens for twice as long, and a probe that was cut opens again, because it proved nothing. The
 * caller's own faults and back-pressure say nothing about a machine.
 */
export class Breaker {
  #settings: BreakerSettings;
  #failures = 0;
  #openedAtMs = 0;
  #openUntilMs: number | null = null;
  #failedProbes = 0;
  #probe: string | null = null;

  constructor(settings: BreakerSettings) {
    this.#settings = settings;
  }

  /** From now on; a cool-down that runs is not made shorter or longer. */
  reconfigure(settings: BreakerSettings): void {
    this.#settings = settings;
  }

  /** No work until then; 0 when it is closed or waits for a probe. */
  openUntilMs(nowMs: number): number {
    return this.#openUntilMs !== null && this.#openUntilMs > nowMs ? this.#openUntilMs : 0;
  }

  get closed(): boolean {
    return this.#openUntilMs === null;
  }

  get probing(): boolean {
    return this.#probe !== null;
  }

  claimed(claimId: string, nowMs: number): void {
    if (this.#openUntilMs !== null && this.#openUntilMs <= nowMs && this.#probe === null) this.#probe = claimId;
  }

  released(claimId: string, claimedAtMs: number, result: ClaimResult, nowMs: number): void {
    const wasProbe = this.#probe === claimId;
    if (wasProbe) this.#probe = null;
    switch (result) {
      case "answered":
        this.#failures = 0;
        // What was sent before the machine broke says nothing of it now.
        if (this.#openUntilMs === null || wasProbe || claimedAtMs >= this.#openedAtMs) this.reset();
        return;
      case "failed":
        if (this.#openUntilMs === null) {
          this.#failures++;
          if (this.#failures >= this.#settings.failureThreshold) this.#open(nowMs);
        } else if (wasProbe) {
          this.#failedProbes++;
          this.#open(nowMs);
        }
        return;
      case "cancelled":
        if (wasProbe) this.#open(nowMs);
        return;
      case "refused":
      case "back_pressure":
        return;
      default:
        result satisfies never;
    }
  }

  reset(): void {
    this.#failures = 0;
    this.#openUntilMs = null;
    this.#failedProbes = 0;
    this.#probe = null;
  }

  #open(nowMs: number): void {
    const { cooldownMs } = this.#settings;
    const longest = Math.max(cooldownMs, LONGEST_COOLDOWN_MS);
    this.#failures = 0;
    this.#openedAtMs = nowMs;
    this.#openUntilMs = nowMs + Math.min(longest, cooldownMs * 2 ** this.#failedProbes);
  }
}
