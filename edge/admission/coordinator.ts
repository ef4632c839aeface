import type { Clock } from "../../shared/time/clock.ts";
import { TransientMap } from "../../shared/transient-map.ts";
import type {
  AdmitDecision,
  AdmitRequest,
  Coordinator,
  PoolDigest,
  PoolStats,
  QueueProspect,
  SettleRequest,
} from "../ports/coordinator.ts";
import { PoolAdmission, type AdmissionDecision, type AdmissionEvent } from "./pool-admission.ts";
import { settingsOfPool, type AdmissionSettings } from "./settings.ts";

interface Pool {
  readonly admission: PoolAdmission;
  /** Waiting admits by request id. */
  readonly waiting: TransientMap<
    string,
    { readonly band: string; readonly resolve: (decision: AdmitDecision) => void }
  >;
  cancelTimer: () => void;
  /** When the timer fires, by the monotonic clock; Infinity while none is set. */
  timerAtMs: number;
}

export interface CoordinatorDeps {
  readonly clock: Clock;
  readonly settings: AdmissionSettings;
}

/**
 * The Coordinator in this process: directly under Node, or inside the Durable Object of a pool. It lends the pure
 * admission of each pool a clock, a timer and promises.
 */
export class InProcessCoordinator implements Coordinator {
  readonly #clock: Clock;
  #settings: AdmissionSettings;
  readonly #pools = new Map<string, Pool>();

  constructor({ clock, settings }: CoordinatorDeps) {
    this.#clock = clock;
    this.#settings = settings;
  }

  /** Holds at once, also for what waits. */
  reconfigure(settings: AdmissionSettings): void {
    this.#settings = settings;
    for (const [name, pool] of this.#pools) {
      pool.admission.reconfigure(settingsOfPool(settings, name));
      this.#handle(name, pool, { kind: "tick" });
    }
  }

  admit(request: AdmitRequest): Promise<AdmitDecision> {
    const pool = this.#poolOf(request.pool);
    const { requestId } = request;
    // The same request again comes from an edge whose first call broke: nobody waits for the old one.
    if (pool.waiting.has(requestId)) this.#handle(request.pool, pool, { kind: "cancel", requestId });
    return new Promise((resolve) => {
      pool.waiting.set(requestId, { band: request.band, resolve });
      this.#handle(request.pool, pool, { kind: "admit", request, wallNowMs: this.#clock.nowMs() });
    });
  }

  settle({ pool, claimId, result, busyForMs, tokens, pace }: SettleRequest): Promise<void> {
    return this.#tell(pool, { kind: "settle", claimId, result, busyForMs, tokens, pace });
  }

  cancel(name: string, requestId: string): Promise<void> {
    return this.#tell(name, { kind: "cancel", requestId });
  }

  renew(name: string, claimIds: readonly string[]): Promise<void> {
    return this.#tell(name, { kind: "renew", claimIds });
  }

  update(digest: PoolDigest): Promise<void> {
    if (digest.replicas.length > 0) this.#poolOf(digest.pool);
    return this.#tell(digest.pool, { kind: "update", digest, wallNowMs: this.#clock.nowMs() });
  }

  stats(): Promise<readonly PoolStats[]> {
    const nowMs = this.#clock.monotonicMs();
    return Promise.resolve([...this.#pools.values()].map(({ admission }) => admission.stats(nowMs)));
  }

  prospect(name: string, requestId: string): Promise<QueueProspect | null> {
    return Promise.resolve(this.#pools.get(name)?.admission.prospect(requestId) ?? null);
  }

  /** Stops all timers and lets every waiting request go. */
  close(): void {
    for (const pool of this.#pools.values()) {
      pool.cancelTimer();
      for (const { resolve } of pool.waiting.values()) resolve({ kind: "cancelled" });
    }
    this.#pools.clear();
  }

  #poolOf(name: string): Pool {
    let pool = this.#pools.get(name);
    if (pool === undefined) {
      pool = {
        admission: new PoolAdmission(name, settingsOfPool(this.#settings, name)),
        waiting: new TransientMap(),
        cancelTimer: () => undefined,
        timerAtMs: Infinity,
      };
      this.#pools.set(name, pool);
    }
    return pool;
  }

  #tell(name: string, event: AdmissionEvent): Promise<void> {
    const pool = this.#pools.get(name);
    if (pool !== undefined) this.#handle(name, pool, event);
    return Promise.resolve();
  }

  #handle(name: string, pool: Pool, event: AdmissionEvent): void {
    const nowMs = this.#clock.monotonicMs();
    for (const decision of pool.admission.handle(event, nowMs)) this.#answer(pool, decision);
    if (pool.admission.idle) {
      pool.cancelTimer();
      this.#pools.delete(name);
      return;
    }
    const nextMs = pool.admission.nextTimerAtMs(nowMs);
    // One that is set for too early finds nothing to do and is set anew: most moves are to later, twice a request.
    if (nextMs !== null && nextMs >= pool.timerAtMs) return;
    pool.cancelTimer();
    pool.timerAtMs = nextMs ?? Infinity;
    if (nextMs === null) return;
    pool.cancelTimer = this.#clock.after(Math.max(0, nextMs - nowMs), () => {
      pool.timerAtMs = Infinity;
      this.#handle(name, pool, { kind: "tick" });
    });
  }

  #answer(pool: Pool, decision: AdmissionDecision): void {
    const waiting = pool.waiting.take(decision.requestId);
    if (waiting === undefined) return;
    const { band, resolve } = waiting;
    switch (decision.kind) {
      case "granted":
        resolve({
          kind: "claimed",
          claim: {
            claimId: decision.claimId,
            target: decision.target,
            expiresAtMs: this.#clock.nowMs() + this.#settings.claimTtlMs,
          },
          queuedMs: decision.queuedMs,
          why: decision.why,
        });
        return;
      case "cancelled":
        resolve({ kind: "cancelled" });
        return;
      case "refused":
        resolve({
          kind: "refused",
          code: decision.code,
          retryAfterSeconds: decision.retryAfterSeconds,
          under: pool.admission.pressure(band, this.#clock.monotonicMs()),
        });
        return;
      case "sae_not_available":
        resolve({ kind: "sae_not_available", available: decision.available });
        return;
      case "context_exceeded":
        resolve({ kind: "context_exceeded", contextLength: decision.contextLength });
        return;
      default:
        decision satisfies never;
    }
  }
}
