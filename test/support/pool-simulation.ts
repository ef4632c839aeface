import { PoolAdmission, type AdmissionDecision, type AdmissionEvent } from "../../edge/admission/pool-admission.ts";
import { DEFAULT_ADMISSION_SETTINGS, type AdmissionSettings } from "../../edge/admission/settings.ts";
import type { AdmitRequest, ReplicaDigest, SettleRequest, UsedTokens } from "../../edge/ports/coordinator.ts";

type Granted = Extract<AdmissionDecision, { kind: "granted" }>;
type Refused = Extract<AdmissionDecision, { kind: "refused" }>;

export interface SimulatedRequest extends Partial<AdmitRequest> {
  /** How long a machine works on it; may depend on which. */
  readonly serviceMs: number | ((granted: Granted) => number);
  readonly used?: UsedTokens;
  /** What the machine took for the first and each further token. */
  readonly pace?: (granted: Granted) => SettleRequest["pace"];
  readonly onGranted?: (granted: Granted) => void;
  readonly onRefused?: (refused: Refused) => void;
  readonly onEnded?: () => void;
}

const WALL = 1_000_000;

/** A pool in virtual time: requests come, machines work on them, and the pool's own timers fire. */
export class PoolSimulation {
  readonly pool: PoolAdmission;
  readonly #events: { readonly atMs: number; readonly order: number; readonly run: () => void }[] = [];
  readonly #waiting = new Map<string, SimulatedRequest>();
  #nowMs = 0;
  #order = 0;
  #made = 0;
  #timerAtMs = Infinity;

  constructor(replicas: readonly ReplicaDigest[], settings: Partial<AdmissionSettings> = {}) {
    this.pool = new PoolAdmission("m", { ...DEFAULT_ADMISSION_SETTINGS, ...settings });
    this.handle({ kind: "update", digest: { pool: "m", replicas }, wallNowMs: WALL });
  }

  get nowMs(): number {
    return this.#nowMs;
  }

  get waiting(): number {
    return this.#waiting.size;
  }

  at(atMs: number, run: () => void): void {
    const event = { atMs: Math.max(atMs, this.#nowMs), order: this.#order++, run };
    let low = 0;
    let high = this.#events.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      const other = this.#events[middle];
      if (other !== undefined && (other.atMs < event.atMs || (other.atMs === event.atMs && other.order < event.order)))
        low = middle + 1;
      else high = middle;
    }
    this.#events.splice(low, 0, event);
  }

  admit(request: SimulatedRequest): void {
    const {
      serviceMs: _serviceMs,
      used: _used,
      pace: _pace,
      onGranted: _granted,
      onRefused: _refused,
      onEnded: _ended,
      ...own
    } = request;
    const requestId = `r${++this.#made}`;
    this.#waiting.set(requestId, request);
    this.handle({
      kind: "admit",
      wallNowMs: WALL + this.#nowMs,
      request: {
        pool: "m",
        requestId,
        attempt: 1,
        project: "p",
        band: "default",
        arrivedAtMs: WALL + this.#nowMs,
        capability: "chat",
        saeIds: [],
        needsSomeSae: false,
        excludedReplicas: [],
        bodyBytes: 10,
        returning: null,
        inputTokens: 100,
        outputTokens: 100,
        session: null,
        prefix: null,
        ...own,
      },
    });
  }

  handle(event: AdmissionEvent): void {
    for (const decision of this.pool.handle(event, this.#nowMs)) this.#take(decision);
    const nextMs = this.pool.nextTimerAtMs(this.#nowMs) ?? Infinity;
    if (nextMs >= this.#timerAtMs) return;
    this.#timerAtMs = nextMs;
    this.at(nextMs, () => {
      this.#timerAtMs = Infinity;
      this.handle({ kind: "tick" });
    });
  }

  runUntil(endMs: number): void {
    for (;;) {
      const [next] = this.#events;
      if (next === undefined || next.atMs > endMs) break;
      this.#events.shift();
      this.#nowMs = next.atMs;
      next.run();
    }
    this.#nowMs = endMs;
  }

  #take(decision: AdmissionDecision): void {
    const request = this.#waiting.get(decision.requestId);
    if (request === undefined) return;
    this.#waiting.delete(decision.requestId);
    if (decision.kind === "refused") request.onRefused?.(decision);
    if (decision.kind !== "granted") return;
    request.onGranted?.(decision);
    const { serviceMs } = request;
    const endMs = this.#nowMs + (typeof serviceMs === "number" ? serviceMs : serviceMs(decision));
    const { claimId } = decision;
    for (let atMs = this.#nowMs + 20_000; atMs < endMs; atMs += 20_000)
      this.at(atMs, () => this.handle({ kind: "renew", claimIds: [claimId] }));
    this.at(endMs, () => {
      this.handle({
        kind: "settle",
        claimId,
        result: "answered",
        tokens: request.used,
        pace: request.pace?.(decision),
      });
      request.onEnded?.();
    });
  }
}

/** Numbers from 0 to 1 that are the same in every run (mulberry's mixing). */
export function seeded(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let mixed = Math.imul(state ^ (state >>> 15), state | 1);
    mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61);
    return ((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32;
  };
}

/** 1 when all got the same, 1/n when one got all. */
export function jain(shares: readonly number[]): number {
  const sum = shares.reduce((total, share) => total + share, 0);
  const squares = shares.reduce((total, share) => total + share * share, 0);
  return squares === 0 ? 1 : (sum * sum) / (shares.length * squares);
}
