import { ApiError } from "../../shared/errors/api-error.ts";
import { sha256 } from "../accounts/sha256.ts";
import { StoreAuthenticator } from "../accounts/store-authenticator.ts";
import { newVerdictMemory, type VerdictMemory } from "../accounts/verdict-memory.ts";
import type { Dispatch, EdgeDeps } from "../deps.ts";
import { DispatchMemory } from "../dispatch/dispatch-memory.ts";
import { Dispatcher } from "../dispatch/dispatcher.ts";
import { IdempotentDispatch } from "../dispatch/idempotency/idempotent-dispatch.ts";
import type { DispatcherDeps } from "../dispatch/settings.ts";
import { chargedSaeCall } from "../dispatch/charged-sae-call.ts";
import { errorHeaders } from "../http/render-error.ts";
import { EdgeMetrics } from "../monitoring/edge-metrics.ts";
import type { AnswerStore } from "../ports/answer-store.ts";
import type { HostAuthenticator } from "../ports/host-authenticator.ts";
import type { Authenticator } from "../ports/principal.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";
import type { Signer } from "../ports/signer.ts";
import * as settings from "../web/settings-of-config.ts";
import { RemoteLedger } from "../web/ledger.remote.ts";
import { createSigner } from "../web/signer.jose.ts";
import { FetchUpstream } from "../web/upstream.fetch.ts";
import { workersClock } from "./clock.workers.ts";
import { settingsOf, type WorkerEnv } from "./env.ts";
import { LEDGER_OBJECT_NAME } from "./ledger-object.ts";
import { workersLogger } from "./logger.workers.ts";
import { remoteCoordinator, remoteFleet, remoteLimits } from "./ports.durable-object.ts";
import { respondOnWorkers } from "./respond.workers.ts";
import { storeOf } from "./store.workers.ts";

const LEDGER_RETRY_SECONDS = 5;

/**
 * Everything that one request needs, made for it alone: in this runtime no promise, stream or client of a request may
 * be used by another.
 */
export async function depsOf(env: WorkerEnv, context: ExecutionContext): Promise<EdgeDeps> {
  const worker = settingsOf(env);
  const { config } = worker;
  const clock = workersClock;
  const logger = workersLogger(config);
  const fleet = remoteFleet(env);
  const signer = await createSigner({ edge: config.name, keys: worker.signingKeys, clock });
  const store = storeOf(worker);
  const authenticator = caughtUp(new StoreAuthenticator({ clock, logger, sha256, store, memory: memoryOf(env) }));
  const ledger = env.LEDGER.getByName(LEDGER_OBJECT_NAME);
  const metrics = new EdgeMetrics();
  const coordinator = remoteCoordinator(env);
  return {
    clock,
    logger,
    randomBytes: (length) => crypto.getRandomValues(new Uint8Array(length)),
    settings: settings.httpSettings(config),
    authenticator,
    everybody: settings.everybodyOf(config),
    hostAuthenticator: authenticator,
    fleet,
    limits: remoteLimits(env),
    ledger: {
      acceptReport: (host, ended, counters) => ledger.acceptReport(host, ended, counters),
      askedOf: (host) => ledger.askedOf(host),
    },
    signer,
    // A Worker is one edge, whatever the number of its isolates.
    placementLease: () => 1,
    dispatch: dispatchOf(env, { signer, metrics, store }),
    callSae: async (call) => {
      const { hasRoom, priceVersion } = await ledger.begin();
      const own = new RemoteLedger(ledger, hasRoom);
      const dispatch = settings.dispatchSettings(config, { priceVersion, secret: worker.secret });
      const upstream = new FetchUpstream();
      const limits = remoteLimits(env);
      try {
        const callDeps = { clock, logger, coordinator, signer, upstream, limits, ledger: own, settings: dispatch };
        return await chargedSaeCall(callDeps, call);
      } finally {
        await own.written().catch((thrown: unknown) => {
          logger.error("usage was lost on its way to the ledger", { request_id: call.requestId }, thrown);
        });
      }
    },
    priceOf: (model) => settings.priceOf(config, model),
    metrics,
    metricsSources: { coordinator, fleet },
    draining: () => false,
    storeState: () =>
      store.keyRevision().then(
        () => "ok" as const,
        () => "away" as const,
      ),
    respond: respondOnWorkers(context),
  };
}

/** Plain data, which the requests of an isolate may share. */
const memories = new WeakMap<object, VerdictMemory>();

function memoryOf(env: WorkerEnv): VerdictMemory {
  const known = memories.get(env);
  if (known !== undefined) return known;
  const memory = newVerdictMemory(settings.verdictSettings(settingsOf(env).config));
  memories.set(env, memory);
  return memory;
}

/** Without it a further attempt would be any request's first, and no stream would be known to be slow. */
const dispatchMemories = new WeakMap<object, DispatchMemory>();

function dispatchMemoryOf(env: WorkerEnv): DispatchMemory {
  const known = dispatchMemories.get(env) ?? new DispatchMemory();
  dispatchMemories.set(env, known);
  return known;
}

/** Nobody polls for revoked keys between requests here, so that each looks whether it is time. */
function caughtUp(authenticator: StoreAuthenticator): Authenticator & HostAuthenticator {
  return {
    async authenticate(credential) {
      await authenticator.catchUp();
      return authenticator.authenticate(credential);
    },
    async authenticateHost(credential) {
      await authenticator.catchUp();
      return authenticator.authenticateHost(credential);
    },
  };
}

/** A dispatcher for one request, once the ledger said that it takes one. */
function dispatchOf(
  env: WorkerEnv,
  parts: { readonly signer: Signer; readonly metrics: EdgeMetrics; readonly store: AnswerStore },
): Dispatch {
  const { config, secret } = settingsOf(env);
  const logger = workersLogger(config);
  return {
    async run(request, writer) {
      const object = env.LEDGER.getByName(LEDGER_OBJECT_NAME);
      const began = await object.begin().catch((thrown: unknown) => {
        logger.error("the ledger cannot be reached", { request_id: request.requestId }, thrown);
        return null;
      });
      if (began === null) {
        refuse(writer, new ApiError("usage_journal_full", { retryAfterSeconds: LEDGER_RETRY_SECONDS }));
        return;
      }
      const { hasRoom, priceVersion } = began;
      const ledger = new RemoteLedger(object, hasRoom);
      // What nobody waits for must have left before this request may be forgotten.
      const leaving: Promise<unknown>[] = [];
      const left = <Value>(call: Promise<Value>): Promise<Value> => {
        leaving.push(call);
        return call;
      };
      const [coordinator, limits] = [remoteCoordinator(env), remoteLimits(env)];
      const dispatchDeps: DispatcherDeps = {
        clock: workersClock,
        logger,
        coordinator: { ...coordinator, settle: (ended) => left(coordinator.settle(ended)) },
        fleet: remoteFleet(env),
        limits: { ...limits, settle: (spent) => left(limits.settle(spent)) },
        ledger,
        signer: parts.signer,
        upstream: new FetchUpstream(),
        metrics: parts.metrics,
        // Nothing waits here after the answer: a reservation is settled with our own count, the row by the report.
        settings: { ...settings.dispatchSettings(config, { priceVersion, secret }), reportWaitMs: 0 },
      };
      const dispatcher = new Dispatcher(dispatchDeps, dispatchMemoryOf(env), null);
      // One for this request alone: the database tells it of others.
      const idempotent = new IdempotentDispatch({
        clock: workersClock,
        logger,
        store: parts.store,
        limits: remoteLimits(env),
        sha256,
        holder: request.requestId,
        // Nothing outlives its client here.
        settings: () => ({ ...settings.idempotencySettings(config), lingerMs: 0 }),
        draining: () => false,
        run: (asked, answer) => dispatcher.run(asked, answer),
      });
      await idempotent.run(request, writer);
      idempotent.close();
      await Promise.allSettled(leaving);
      await ledger.written().catch((thrown: unknown) => {
        logger.error("usage was lost on its way to the ledger", { request_id: request.requestId }, thrown);
      });
    },
  };
}

function refuse(writer: ResponseWriter, error: ApiError): void {
  writer.start(error.status, errorHeaders(error));
  writer.write(JSON.stringify(error.toBody()));
  writer.end();
}
