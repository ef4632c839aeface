import type { Logger } from "../../shared/logging/logger.ts";
import type { Answer } from "../../shared/protocol/answer.ts";
import type { AttachedSae, Report } from "../../shared/protocol/report.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Coordinator, ReplicaDigest } from "../ports/coordinator.ts";
import type { Fleet, HostState, ServedModel } from "../ports/fleet.ts";
import { endpointDigest } from "./endpoint-digest.ts";
import { hostState, isNewer, replicaDigest, type HostRecord } from "./host-record.ts";
import { resolveName, servedModel } from "./served-models.ts";
import type { FleetSettings } from "./settings.ts";

export interface FleetDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly coordinator: Pick<Coordinator, "update">;
  readonly settings: FleetSettings;
}

interface PoolView {
  readonly replicas: ReplicaDigest[];
  readonly saes: AttachedSae[];
  readonly otherNames: Set<string>;
}

/**
 * Reports in, pools out. Owner of what hosts said and of the list of models; tells the Coordinator at once when a
 * pool's shape changes and at most every `pushEveryMs` when only its load does.
 */
export class InProcessFleet implements Fleet {
  readonly #clock: Clock;
  readonly #logger: Logger;
  readonly #coordinator: Pick<Coordinator, "update">;
  readonly #settings: FleetSettings;
  readonly #hosts = new Map<string, HostRecord>();
  readonly #lost = new Set<string>();
  readonly #sinceMs = new Map<string, number>();
  #pools = new Map<string, PoolView>();
  #models: readonly ServedModel[] = [];
  /** Shapes of the pools last pushed; a pool that is gone stays until the Coordinator was told. */
  readonly #pushedShapes = new Map<string, string>();
  #pushPending = false;
  #cancelPush: () => void = () => undefined;
  #cancelSweep: () => void = () => undefined;

  constructor({ clock, logger, coordinator, settings }: FleetDeps) {
    this.#clock = clock;
    this.#logger = logger;
    this.#coordinator = coordinator;
    this.#settings = settings;
    this.#rebuild();
    this.#push();
  }

  accept(report: Report): Promise<Pick<Answer, "ack_seq" | "report_every_ms" | "desired">> {
    const known = this.#hosts.get(report.host);
    if (isNewer(report, known)) {
      if (known === undefined || known.report.epoch !== report.epoch)
        this.#logger.info("host reports", { host: report.host, epoch: report.epoch, url: report.url });
      this.#hosts.set(report.host, { report, receivedAtMs: this.#clock.nowMs() });
      this.#lost.delete(report.host);
      this.#rebuild();
      if (this.#shapeChanged()) this.#push();
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

  hosts(): Promise<readonly HostState[]> {
    return Promise.resolve([...this.#hosts.values()].map(hostState));
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

  /** Stops all timers. */
  close(): void {
    this.#cancelPush();
    this.#cancelSweep();
  }

  #rebuild(): void {
    const pools = new Map<string, PoolView>();
    const viewOf = (name: string): PoolView => {
      const view = pools.get(name) ?? { replicas: [], saes: [], otherNames: new Set<string>() };
      pools.set(name, view);
      return view;
    };
    for (const record of this.#hosts.values()) {
      const context = { edge: this.#settings.edge, lost: this.#lost.has(record.report.host) };
      for (const replica of record.report.replicas) {
        const view = viewOf(replica.model);
        const digest = replicaDigest(record, replica, context);
        view.replicas.push(digest);
        if (digest.ready && !digest.draining) view.saes.push(...replica.saes);
      }
    }
    for (const endpoint of this.#settings.endpoints) {
      for (const model of endpoint.models) {
        const view = viewOf(endpoint.pool ?? model);
        view.replicas.push(endpointDigest(endpoint, model));
        if (endpoint.pool !== null && endpoint.pool !== model) view.otherNames.add(model);
      }
    }
    const nowMs = this.#clock.nowMs();
    this.#pools = pools;
    this.#models = [...pools].map(([pool, view]) => {
      const sinceMs = this.#sinceMs.get(pool) ?? nowMs;
      this.#sinceMs.set(pool, sinceMs);
      return servedModel(
        { digest: { pool, replicas: view.replicas }, saes: view.saes, otherNames: [...view.otherNames], sinceMs },
        this.#settings.models[pool],
      );
    });
    for (const pool of this.#sinceMs.keys()) if (!pools.has(pool)) this.#sinceMs.delete(pool);
  }

  #shapeChanged(): boolean {
    if (this.#pools.size !== this.#pushedShapes.size) return true;
    for (const [pool, view] of this.#pools) if (this.#pushedShapes.get(pool) !== shapeOf(view)) return true;
    return false;
  }

  #pushSoon(): void {
    if (this.#pushPending) return;
    this.#pushPending = true;
    this.#cancelPush = this.#clock.after(this.#settings.pushEveryMs, () => this.#push());
  }

  #push(): void {
    this.#cancelPush();
    this.#pushPending = false;
    for (const [pool, { replicas }] of this.#pools) this.#tell(pool, replicas);
    for (const pool of this.#pushedShapes.keys()) if (!this.#pools.has(pool)) this.#tell(pool, []);
    this.#pushedShapes.clear();
    for (const [pool, view] of this.#pools) this.#pushedShapes.set(pool, shapeOf(view));
  }

  #tell(pool: string, replicas: readonly ReplicaDigest[]): void {
    this.#coordinator.update({ pool, replicas }).catch((thrown: unknown) => {
      this.#logger.error("a pool could not be told of its replicas", { pool }, thrown);
      // The next report tells it anew.
      this.#pushedShapes.delete(pool);
    });
  }

  /** Wakes when the host that has been silent longest would be lost. */
  #scheduleSweep(): void {
    this.#cancelSweep();
    let next = Infinity;
    for (const [host, { receivedAtMs }] of this.#hosts)
      if (!this.#lost.has(host)) next = Math.min(next, receivedAtMs + this.#settings.lostAfterMs);
    if (next === Infinity) return;
    this.#cancelSweep = this.#clock.after(Math.max(1, next - this.#clock.nowMs()), () => this.#sweep());
  }

  #sweep(): void {
    const nowMs = this.#clock.nowMs();
    for (const [host, { receivedAtMs }] of this.#hosts) {
      if (this.#lost.has(host) || nowMs - receivedAtMs < this.#settings.lostAfterMs) continue;
      this.#lost.add(host);
      this.#logger.warn("host lost: it sends no reports", { host, silentMs: nowMs - receivedAtMs });
    }
    this.#rebuild();
    if (this.#shapeChanged()) this.#push();
    this.#scheduleSweep();
  }
}

/** What decides whether a replica may be chosen; the rest is load. */
function shapeOf({ replicas }: PoolView): string {
  return JSON.stringify(
    replicas.map(({ target, ready, draining, slots, saes, capabilities }) => [
      target.key,
      target.epoch,
      target.url,
      ready,
      draining,
      slots,
      saes,
      capabilities,
    ]),
  );
}
