import { DurableObject } from "cloudflare:workers";
import type { Report } from "../../shared/protocol/report.ts";
import { InProcessFleet } from "../fleet/fleet.ts";
import type { PoolDigest } from "../ports/coordinator.ts";
import type { AcceptedReport, HostState, ServedModel } from "../ports/fleet.ts";
import { fleetSettings } from "../web/settings-of-config.ts";
import { workersClock } from "./clock.workers.ts";
import { settingsOf, type WorkerEnv } from "./env.ts";
import { workersLogger } from "./logger.workers.ts";

/** One site: all hosts and endpoints of this Worker. */
export const FLEET_OBJECT_NAME = "site";

/** The Fleet of a site. Hosts report each second, so what it forgets when it starts anew is known again at once. */
export class FleetObject extends DurableObject<WorkerEnv> {
  readonly #fleet: InProcessFleet;
  readonly #digests = new Map<string, PoolDigest>();

  constructor(state: DurableObjectState, env: WorkerEnv) {
    super(state, env);
    const { config } = settingsOf(env);
    this.#fleet = new InProcessFleet({
      clock: workersClock,
      logger: workersLogger(config),
      settings: fleetSettings(config),
      coordinator: { update: (digest) => this.#push(digest) },
    });
  }

  accept(report: Report): Promise<AcceptedReport> {
    return this.#fleet.accept(report);
  }

  async models(): Promise<readonly ServedModel[]> {
    return this.#fleet.models();
  }

  async resolve(name: string): Promise<ServedModel | null> {
    return this.#fleet.resolve(name);
  }

  unreachable(host: string, epoch: number | null): Promise<boolean> {
    return this.#fleet.unreachable(host, epoch);
  }

  settling(): Promise<boolean> {
    return this.#fleet.settling();
  }

  async hosts(): Promise<readonly HostState[]> {
    return this.#fleet.hosts();
  }

  /** What a pool's Coordinator must know when it starts anew. */
  async digestOf(pool: string): Promise<PoolDigest> {
    return this.#digests.get(pool) ?? { pool, replicas: [] };
  }

  async #push(digest: PoolDigest): Promise<void> {
    this.#digests.set(digest.pool, digest);
    await this.env.COORDINATOR.getByName(digest.pool).update(digest);
  }
}
