import { DurableObject } from "cloudflare:workers";
import { InProcessCoordinator } from "../admission/coordinator.ts";
import type {
  AdmitDecision,
  AdmitRequest,
  PoolDigest,
  PoolStats,
  QueueProspect,
  SettleRequest,
} from "../ports/coordinator.ts";
import { admissionSettings } from "../web/settings-of-config.ts";
import { workersClock } from "./clock.workers.ts";
import { settingsOf, type WorkerEnv } from "./env.ts";
import { FLEET_OBJECT_NAME } from "./fleet-object.ts";

/** The Coordinator of one pool. Its state lives in memory: an object that starts anew asks the fleet for its replicas. */
export class CoordinatorObject extends DurableObject<WorkerEnv> {
  readonly #coordinator: InProcessCoordinator;
  #digest: Promise<void> | null = null;

  constructor(state: DurableObjectState, env: WorkerEnv) {
    super(state, env);
    this.#coordinator = new InProcessCoordinator({
      clock: workersClock,
      settings: admissionSettings(settingsOf(env).config),
    });
  }

  async admit(request: AdmitRequest): Promise<AdmitDecision> {
    this.#digest ??= this.#askFleet(request.pool).catch((thrown: unknown) => {
      this.#digest = null;
      throw thrown;
    });
    await this.#digest;
    return this.#coordinator.admit(request);
  }

  settle(request: SettleRequest): Promise<void> {
    return this.#coordinator.settle(request);
  }

  cancel(pool: string, requestId: string): Promise<void> {
    return this.#coordinator.cancel(pool, requestId);
  }

  renew(pool: string, claimIds: readonly string[]): Promise<void> {
    return this.#coordinator.renew(pool, claimIds);
  }

  update(digest: PoolDigest): Promise<void> {
    this.#digest = Promise.resolve();
    return this.#coordinator.update(digest);
  }

  prospect(pool: string, requestId: string): Promise<QueueProspect | null> {
    return this.#coordinator.prospect(pool, requestId);
  }

  async stats(): Promise<readonly PoolStats[]> {
    return this.#coordinator.stats();
  }

  async #askFleet(pool: string): Promise<void> {
    const fleet = this.env.FLEET.getByName(FLEET_OBJECT_NAME);
    await this.#coordinator.update(await fleet.digestOf(pool));
  }
}
