import { ApiError } from "../../shared/errors/api-error.ts";
import type { AdmitRequest, Coordinator, PoolDigest, PoolStats, SettleRequest } from "../ports/coordinator.ts";
import type { Fleet } from "../ports/fleet.ts";
import type { Limits, ReserveRequest, SettleReservation } from "../ports/limits.ts";
import type { Report } from "../../shared/protocol/report.ts";
import type { WorkerEnv } from "./env.ts";
import { FLEET_OBJECT_NAME } from "./fleet-object.ts";

/** The Fleet of this site, in its object. */
export function remoteFleet(env: WorkerEnv): Fleet {
  const site = env.FLEET.getByName(FLEET_OBJECT_NAME);
  return {
    accept: (report: Report) => site.accept(report),
    models: () => site.models(),
    resolve: (name) => site.resolve(name),
    unreachable: (host, epoch) => site.unreachable(host, epoch),
    hosts: () => site.hosts(),
    settling: () => site.settling(),
  };
}

/** The Coordinators, each pool's in an object of its own. */
export function remoteCoordinator(env: WorkerEnv): Coordinator {
  const poolOf = (pool: string) => env.COORDINATOR.getByName(pool);
  return {
    admit: (request: AdmitRequest) => poolOf(request.pool).admit(request),
    settle: (request: SettleRequest) => poolOf(request.pool).settle(request),
    cancel: (pool, requestId) => poolOf(pool).cancel(pool, requestId),
    renew: (pool, claimIds) => poolOf(pool).renew(pool, claimIds),
    update: (digest: PoolDigest) => poolOf(digest.pool).update(digest),
    prospect: (pool, requestId) => poolOf(pool).prospect(pool, requestId),
    async stats() {
      const models = await remoteFleet(env).models();
      const stats = await Promise.all(models.map(({ pool }) => poolOf(pool).stats()));
      return stats.flat() satisfies PoolStats[];
    },
  };
}

/** The Limits, each account's in an object of its own. */
export function remoteLimits(env: WorkerEnv): Limits {
  return {
    reserve: (request: ReserveRequest) => env.LIMITS.getByName(request.account).reserve(request).catch(notReached),
    settle: (request: SettleReservation) => env.LIMITS.getByName(request.account).settle(request),
    addSpent: (account, spent) => env.LIMITS.getByName(account).addSpent(account, spent, null),
    inspect: (request) => env.LIMITS.getByName(request.account).inspect(request).catch(notReached),
  };
}

/** An object that begins anew must know what was spent, and cannot while the database is away. */
function notReached(cause: unknown): never {
  const message = "The limits of this key cannot be checked at the moment.";
  throw new ApiError("authentication_unavailable", { message, retryAfterSeconds: 5, cause });
}
