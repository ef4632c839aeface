import type { Logger } from "../../shared/logging/logger.ts";
import type { AttachedSae, Report, ReportedProfile } from "../../shared/protocol/report.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Coordinator, ReplicaDigest } from "../ports/coordinator.ts";
import type { AcceptedReport, Fleet, HostState, ServedModel } from "../ports/fleet.ts";
import { carries } from "../routing/labels.ts";
import { endpointDigest, type ScrapedEndpoint } from "./endpoint-digest.ts";
import { hostState, isNewer, replicaDigest, type HostRecord } from "./host-record.ts";
import { resolveName, servedModel } from "./served-models.ts";
import { failureClass } from "./failure-class.ts";
import type { FleetMemory } from "./fleet-memory.ts";
import type { ScrapedLoad } from "./scraped-load.ts";
import type { FleetSettings, ModelNote } from "./settings.ts";

export interface FleetDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly coordinator: Pick<Coordinator, "update">;
  readonly settings: FleetSettings;
  /** What earlier lives of this edge knew; without one, models are unknown until their hosts report. */
  readonly memory?: FleetMemory;
}

/** A host that could not be connected to is tried again after this, should its reports not arrive though it lives. */
const RETRY_UNREACHABLE_MS = 30_000;

interface HeardHost extends HostRecord {
  /** By the monotonic clock, since silence is a duration. */
  readonly heardAtMs: number;
}

interface PoolView {
  readonly replicas: ReplicaDigest[];
  readonly saes: AttachedSae[];
  readonly profiles: ReportedProfile[];
  readonly otherNames: Set<string>;
  readonly silent: Set<string>;
  readonly failures: (string | null)[];
}

/**
 * Reports in, pools out. Owner of what hosts said and of the list of models; tells the Coordinator at once when a
 * pool's shape changes and at most every `pushEveryMs` when only its load does.
 */
export class InProcessFleet implements Fleet {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #coordinator: Pick<Coordinator, "update">;
  #settings: FleetSettings;
  readonly #hosts = new Map<string, HeardHost>();
  /** Hosts of an earlier life of this edge that have not reported to this one. */
  readonly #remembered = new Map<string, Report>();
  readonly #memory: FleetMemory | null;
  /** Wall time, for what is remembered; and monotonic, to measure from. */
  readonly #startedAtMs: number;
  readonly #beganAtMs: number;
  readonly #lost = new Set<string>();
  readonly #scraped = new Map<string, ScrapedEndpoint>();
  readonly #silent = new Set<string>();
  /** When a host that could not be connected to is tried again. */
  readonly #unreachableUntilMs = new Map<string, number>();
  readonly #sinceMs = new Map<string, number>();
  #pools = new Map<string, PoolView>();
  #models: readonly ServedModel[] = [];
  /** Shapes of the pools last pushed; a pool that is gone stays until the Coordinator was told. */
  readonly #pushedShapes = new Map<string, string>();
  #pushPending = false;
  #cancelPush: () => void = () => undefined;
  #cancelSweep: () => void = () => undefined;

  constructor({ clock, logger, coordinator, settings, memory }: FleetDeps) {
    this.#clock = clock;
    this.#logger = logger;
    this.#coordinator = coordinator;
    this.#settings = settings;
    this.#memory = memory ?? null;
    this.#startedAtMs = clock.nowMs();
    this.#beganAtMs = clock.monotonicMs();
    for (const report of memory?.known ?? []) this.#remembered.set(report.host, report);
    this.#rebuild();
    void this.#push();
    this.#scheduleSweep();
  }

  /** Endpoints and what is said of models; hosts and what they reported stay. */
  reconfigure(settings: FleetSettings): void {
    const kept = new Set(settings.endpoints.map(({ id, url }) => `${id} ${url}`));
    for (const { id, url } of this.#settings.endpoints) if (!kept.has(`${id} ${url}`)) this.#scraped.delete(id);
    this.#settings = settings;
    this.#rebuild();
    void this.#push();
    this.#scheduleSweep();
  }

  accept(report: Report): Promise<AcceptedReport> {
    const known = this.#hosts.get(report.host);
    // A host whose clock was set back starts with a lower epoch; it must not stay unheard when the former life is over.
    if (isNewer(report, known) || (this.#silent.has(report.host) && report.epoch !== known?.report.epoch)) {
      if (known === undefined || known.report.epoch !== report.epoch)
        this.#logger.info("host reports", { host: report.host, epoch: report.epoch, url: report.url });
      this.#hosts.set(report.host, {
        report,
        receivedAtMs: this.#clock.nowMs(),
        heardAtMs: this.#clock.monotonicMs(),
      });
      this.#remembered.delete(report.host);
      this.#lost.delete(report.host);
      this.#silent.delete(report.host);
      this.#unreachableUntilMs.delete(report.host);
      this.#rebuild();
      if (this.#shapeChanged()) void this.#push();
      else this.#pushSoon();
      this.#scheduleSweep();
    }
    return Promise.resolve({ ack_seq: report.seq, report_every_ms: this.#settings.reportEveryMs, desired: null });
  }

  models(): Promise<readonly ServedModel[]> {
    return Promise.resolve(this.#models);
  }

  resolve(name: string): Promise<ServedModel | null> {
    return Promise.resolve(resolveName(this.#models, name));
  }

  async unreachable(host: string, epoch: number | null): Promise<boolean> {
    if (this.#hosts.get(host)?.report.epoch !== epoch) return false;
    if (!this.#unreachableUntilMs.has(host)) {
      this.#logger.warn("host cannot be connected to: it gets no work until it reports again", { host });
      this.#unreachableUntilMs.set(host, this.#clock.monotonicMs() + RETRY_UNREACHABLE_MS);
      this.#rebuild();
      await this.#push();
      this.#scheduleSweep();
    }
    return true;
  }

  hosts(): Promise<readonly HostState[]> {
    return Promise.resolve([...this.#hosts.values()].map(hostState));
  }

  settling(): Promise<boolean> {
    const sinceStartMs = this.#clock.monotonicMs() - this.#beganAtMs;
    const knowsNothing =
      this.#hosts.size === 0 && [...this.#pools.values()].every(({ replicas }) => replicas.length === 0);
    return Promise.resolve(knowsNothing && sinceStartMs < this.#settings.unreachableAfterMs);
  }

  /** KV cells in use by backend, as a share; backends that report none are left out. */
  kvOccupancy(): Readonly<Record<string, number>> {
    const shares: Record<string, number> = {};
    for (const { report } of this.#hosts.values()) {
      const total = report.replicas.reduce((sum, replica) => sum + replica.total_kv_cells, 0);
      const free = report.replicas.reduce((sum, replica) => sum + replica.free_kv_cells, 0);
      if (total > 0) shares[report.host] = Math.min(1, Math.max(0, (total - free) / total));
    }
    return shares;
  }

  /** What a static endpoint's metrics page said; null: what was known of it holds no more. */
  scraped(endpointId: string, loads: ReadonlyMap<string, ScrapedLoad> | null): void {
    if (loads === null && !this.#scraped.delete(endpointId)) return;
    if (loads !== null) this.#scraped.set(endpointId, { loads, atMs: this.#clock.nowMs() });
    this.#rebuild();
    this.#pushSoon();
  }

  /** Stops all timers. */
  close(): void {
    this.#cancelPush();
    this.#cancelSweep();
  }

  #rebuild(): void {
    const pools = new Map<string, PoolView>();
    const viewOf = (name: string): PoolView => {
      const view = pools.get(name) ?? {
        replicas: [],
        saes: [],
        profiles: [],
        otherNames: new Set<string>(),
        silent: new Set<string>(),
        failures: [],
      };
      pools.set(name, view);
      return view;
    };
    const remembered = [...this.#remembered.values()].map((report) => ({ report, receivedAtMs: this.#startedAtMs }));
    for (const record of [...this.#hosts.values(), ...remembered]) {
      const { host } = record.report;
      const away = this.#lost.has(host) || this.#unreachableUntilMs.has(host) || this.#remembered.has(host);
      for (const replica of record.report.replicas) {
        const note = this.#noteOf(replica.model);
        if (!carries(record.report.labels, note?.nodeSelector ?? {})) continue;
        const view = viewOf(replica.model);
        const digest = replicaDigest(record, replica, { edge: this.#settings.edge, away, note });
        view.replicas.push(digest);
        view.failures.push(replica.state === "failed" && !away ? failureClass(replica.reason ?? "") : null);
        if (digest.ready && !digest.draining) view.saes.push(...replica.saes);
        if (this.#silent.has(host)) view.silent.add(digest.target.key);
        if (digest.ready && !digest.draining) view.profiles.push(...(replica.profiles ?? []));
      }
    }
    for (const endpoint of this.#settings.endpoints) {
      for (const model of endpoint.models) {
        const note = this.#noteOf(endpoint.pool ?? model);
        if (!carries(endpoint.labels ?? {}, note?.nodeSelector ?? {})) continue;
        const view = viewOf(endpoint.pool ?? model);
        view.replicas.push(endpointDigest(endpoint, model, this.#scraped.get(endpoint.id), note));
        view.failures.push(null);
        if (endpoint.pool !== null && endpoint.pool !== model) view.otherNames.add(model);
      }
    }
    // Known by name although nothing serves it: others answer in its stead.
    for (const [name, { fallbacks = [] }] of Object.entries(this.#settings.models))
      if (fallbacks.length > 0) viewOf(name);
    const nowMs = this.#clock.nowMs();
    this.#pools = pools;
    this.#models = [...pools].map(([pool, view]) => {
      const sinceMs = this.#sinceMs.get(pool) ?? nowMs;
      this.#sinceMs.set(pool, sinceMs);
      return servedModel(
        {
          digest: { pool, replicas: view.replicas },
          saes: view.saes,
          profiles: view.profiles,
          otherNames: [...view.otherNames],
          sinceMs,
          silent: view.silent,
          failures: view.failures,
        },
        this.#noteOf(pool),
      );
    });
    for (const pool of this.#sinceMs.keys()) if (!pools.has(pool)) this.#sinceMs.delete(pool);
  }

  #noteOf(model: string): ModelNote | undefined {
    return Object.hasOwn(this.#settings.models, model) ? this.#settings.models[model] : undefined;
  }

  #shapeChanged(): boolean {
    if (this.#pools.size !== this.#pushedShapes.size) return true;
    for (const [pool, view] of this.#pools) if (this.#pushedShapes.get(pool) !== shapeOf(view)) return true;
    return false;
  }

  #pushSoon(): void {
    if (this.#pushPending) return;
    this.#pushPending = true;
    this.#cancelPush = this.#clock.after(this.#settings.pushEveryMs, () => void this.#push());
  }

  /** Resolves when every pool was told; never rejects. */
  async #push(): Promise<void> {
    this.#cancelPush();
    this.#pushPending = false;
    if (this.#hosts.size > 0 && this.#shapeChanged())
      this.#memory?.remember(
        [...this.#hosts.values()].map(({ report }) => report).concat(...this.#remembered.values()),
      );
    const told = [...this.#pools].map(([pool, { replicas }]) => this.#tell(pool, replicas));
    for (const pool of this.#pushedShapes.keys()) if (!this.#pools.has(pool)) told.push(this.#tell(pool, []));
    this.#pushedShapes.clear();
    for (const [pool, view] of this.#pools) this.#pushedShapes.set(pool, shapeOf(view));
    await Promise.all(told);
  }

  #tell(pool: string, replicas: readonly ReplicaDigest[]): Promise<void> {
    return this.#coordinator.update({ pool, replicas }).catch((thrown: unknown) => {
      this.#logger.error("a pool could not be told of its replicas", { pool }, thrown);
      // The next report tells it anew.
      this.#pushedShapes.delete(pool);
    });
  }

  /** Wakes when time alone changes what is known of a host: it is silent, lost, forgotten, or tried again. */
  #scheduleSweep(): void {
    this.#cancelSweep();
    const { unreachableAfterMs, lostAfterMs } = this.#settings;
    let next = this.#remembered.size > 0 ? this.#beganAtMs + lostAfterMs : Infinity;
    for (const [host, { heardAtMs }] of this.#hosts) {
      if (!this.#silent.has(host)) next = Math.min(next, heardAtMs + unreachableAfterMs);
      if (!this.#lost.has(host)) next = Math.min(next, heardAtMs + lostAfterMs);
    }
    for (const untilMs of this.#unreachableUntilMs.values()) next = Math.min(next, untilMs);
    if (next === Infinity) return;
    this.#cancelSweep = this.#clock.after(Math.max(1, next - this.#clock.monotonicMs()), () => this.#sweep());
  }

  #sweep(): void {
    const nowMs = this.#clock.monotonicMs();
    const { unreachableAfterMs, lostAfterMs } = this.#settings;
    for (const [host, { heardAtMs }] of this.#hosts) {
      const silentMs = nowMs - heardAtMs;
      if (silentMs >= unreachableAfterMs && !this.#silent.has(host)) {
        this.#silent.add(host);
        this.#logger.warn("host is silent", { host, silentMs });
      }
      if (silentMs >= lostAfterMs && !this.#lost.has(host)) {
        this.#lost.add(host);
        this.#logger.warn("host lost: it sends no reports", { host, silentMs });
      }
    }
    for (const [host, untilMs] of this.#unreachableUntilMs) if (untilMs <= nowMs) this.#unreachableUntilMs.delete(host);
    // Who has not come back by now has probably left for good.
    if (nowMs - this.#beganAtMs >= lostAfterMs) this.#remembered.clear();
    this.#rebuild();
    if (this.#shapeChanged()) void this.#push();
    this.#scheduleSweep();
  }
}

/** What decides whether a replica may be chosen; the rest is load. */
function shapeOf({ replicas }: PoolView): string {
  return JSON.stringify(
    replicas.map(({ target, ready, draining, slots, saes, capabilities, contextLength }) => [
      target.key,
      target.epoch,
      target.url,
      ready,
      draining,
      slots,
      saes,
      capabilities,
      contextLength,
    ]),
  );
}
