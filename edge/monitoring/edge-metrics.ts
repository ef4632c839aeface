import type { Coordinator } from "../ports/coordinator.ts";
import type { Fleet, HostState } from "../ports/fleet.ts";
import type { RequestOutcome } from "../ports/ledger.ts";
import { MetricsRegistry, type Counter, type Gauge, type Histogram } from "./registry.ts";

export interface EndedRequestMetrics {
  /** Of the fleet's own list, aliases resolved; never a name that a caller made up. */
  readonly model: string;
  readonly outcome: RequestOutcome;
  /** From received to the first token that is not empty; null when there was none. */
  readonly ttftMs: number | null;
  readonly tpotMs: number | null;
  /** How each of its attempts ended, and with which model. */
  readonly attempts?: readonly { readonly model: string; readonly end: string }[];
}

/** Where the gauges of a scrape are read from. */
export interface MetricsSources {
  readonly coordinator: Pick<Coordinator, "stats">;
  readonly fleet: Pick<Fleet, "hosts">;
  /** Names of the bands, whose queues are shown empty while nothing is known of them. */
  readonly bands?: readonly string[];
  /** Share of KV cells in use by backend; backends that report none are left out. */
  kvOccupancy?(): Promise<Readonly<Record<string, number>>>;
  /** Open reservations of the limits. */
  openReservations?(): number;
  /** Tokens by which host counters and attempts differ, as last proved; null when never proved. */
  ledgerDifference?(): number | null;
}

/** The one label for models that the fleet does not serve. */
export const UNKNOWN_MODEL = "unknown";

const TTFT_SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const TPOT_SECONDS = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

/** The edge's metrics under the names of the design (section 10). */
export class EdgeMetrics {
  readonly #registry = new MetricsRegistry();
  readonly #inFlight: Gauge;
  readonly #queueDepth: Gauge;
  readonly #queueBytes: Gauge;
  readonly #queueOldest: Gauge;
  readonly #breakers: Gauge;
  readonly #saturation: Gauge;
  readonly #kvOccupancy: Gauge;
  readonly #replicas: Gauge;
  readonly #answersRefused: Gauge;
  readonly #requests: Counter;
  readonly #attempts: Counter;
  readonly #speculation: Gauge;
  readonly #ttft: Histogram;
  readonly #tpot: Histogram;
  readonly #ledgerDifference: Gauge;
  readonly #leasesOpen: Gauge;

  constructor() {
    const registry = this.#registry;
    this.#inFlight = registry.gauge("steerage_requests_in_flight", "Requests accepted and not yet ended.");
    this.#inFlight.set(0);
    this.#queueDepth = registry.gauge("steerage_queue_depth", "Requests waiting, by band.");
    this.#queueOldest = registry.gauge("steerage_queue_oldest_seconds", "Age of the oldest waiting request, by band.");
    this.#saturation = registry.gauge("steerage_saturation", "0 idle, 1 full, above 1 queueing, by pool.");
    this.#kvOccupancy = registry.gauge("steerage_kv_occupancy", "Share of KV cells in use, by backend.");
    this.#replicas = registry.gauge("steerage_replicas", "Replicas that hosts report, by model and state.");
    this.#answersRefused = registry.gauge(
      "steerage_host_answers_refused",
      "Answers to reports that a host did not use, since its start, by host.",
    );
    this.#requests = registry.counter("steerage_requests_total", "Requests ended, by model and outcome.");
    this.#ttft = registry.histogram("steerage_ttft_seconds", "Received to first token, at the edge.", TTFT_SECONDS);
    this.#tpot = registry.histogram(
      "steerage_tpot_seconds",
      "Mean time per output token after the first.",
      TPOT_SECONDS,
    );
    this.#ledgerDifference = registry.gauge("steerage_ledger_difference", "Tokens by which the ledger's sums differ.");
    this.#leasesOpen = registry.gauge("steerage_leases_open", "Claims and reservations held, by kind.");
    this.#queueBytes = registry.gauge("steerage_queue_bytes", "Bytes of request bodies waiting, by band.");
    this.#breakers = registry.gauge("steerage_breakers", "Replicas taken out of choice, by replica and state.");
    this.#attempts = registry.counter(
      "steerage_attempts_total",
      "Attempts ended, by model and end; `lost_race` are hedges and what they hurried.",
    );
    this.#speculation = registry.gauge(
      "steerage_speculation_tokens",
      "Tokens since the engines' starts, by model and kind: guesses verified, accepted of them, computed by draft models.",
    );
  }

  #showReplica({ model, state, speculation }: HostState["replicas"][number]): void {
    this.#replicas.add(1, { model, state });
    for (const [kind, tokens] of Object.entries(speculation ?? {})) this.#speculation.add(tokens, { model, kind });
  }

  /** Each request that started ends exactly once. */
  requestStarted(): void {
    this.#inFlight.add(1);
  }

  requestEnded(ended: EndedRequestMetrics): void {
    this.#inFlight.add(-1);
    this.#requests.add(1, { model: ended.model, outcome: ended.outcome });
    for (const { model, end } of ended.attempts ?? []) this.#attempts.add(1, { model, end });
    if (ended.ttftMs !== null) this.#ttft.observe(ended.ttftMs / 1_000);
    if (ended.tpotMs !== null) this.#tpot.observe(ended.tpotMs / 1_000);
  }

  /** A request that was refused before it took anything: no row, no place in flight. */
  requestRefused(model: string): void {
    this.#requests.add(1, { model, outcome: "refused" });
  }

  /** Reads the gauges anew and renders everything. */
  async scrape(sources: MetricsSources): Promise<string> {
    const [pools, hosts, kv] = await Promise.all([
      sources.coordinator.stats(),
      sources.fleet.hosts(),
      sources.kvOccupancy?.() ?? Promise.resolve<Readonly<Record<string, number>>>({}),
    ]);
    this.#clearScraped();
    const oldestMs = new Map<string, number>();
    for (const band of sources.bands ?? []) {
      this.#queueDepth.set(0, { band });
      oldestMs.set(band, 0);
    }
    let claims = 0;
    for (const pool of pools) {
      claims += pool.inFlight;
      this.#saturation.set(pool.saturation, { pool: pool.pool });
      for (const [band, depth] of Object.entries(pool.queueDepthByBand)) this.#queueDepth.add(depth, { band });
      for (const [band, bytes] of Object.entries(pool.queueBytesByBand ?? {})) this.#queueBytes.add(bytes, { band });
      for (const [replica, state] of Object.entries(pool.breakers ?? {})) this.#breakers.set(1, { replica, state });
      for (const [band, ms] of Object.entries(pool.oldestWaitMsByBand))
        oldestMs.set(band, Math.max(oldestMs.get(band) ?? 0, ms));
    }
    for (const [band, ms] of oldestMs) this.#queueOldest.set(ms / 1_000, { band });
    for (const host of hosts) {
      for (const replica of host.replicas) this.#showReplica(replica);
      if (host.answersRefused !== undefined) this.#answersRefused.set(host.answersRefused, { host: host.host });
    }
    for (const [backend, share] of Object.entries(kv)) this.#kvOccupancy.set(share, { backend });
    this.#leasesOpen.set(claims, { kind: "claim" });
    if (sources.openReservations !== undefined)
      this.#leasesOpen.set(sources.openReservations(), { kind: "reservation" });
    const difference = sources.ledgerDifference?.() ?? null;
    if (difference !== null) this.#ledgerDifference.set(difference);
    return this.#registry.text();
  }

  #clearScraped(): void {
    for (const gauge of [
      this.#queueDepth,
      this.#queueBytes,
      this.#breakers,
      this.#queueOldest,
      this.#saturation,
      this.#kvOccupancy,
      this.#replicas,
      this.#answersRefused,
      this.#speculation,
      this.#ledgerDifference,
      this.#leasesOpen,
    ]) {
      gauge.clear();
    }
  }
}
