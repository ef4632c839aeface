import { mkdir } from "node:fs/promises";
import { ApiError } from "../../shared/errors/api-error.ts";
import { newRequestId } from "../../shared/ids.ts";
import { createLogger, type Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { newVerdictMemory } from "../accounts/verdict-memory.ts";
import { StoreAuthenticator } from "../accounts/store-authenticator.ts";
import { InProcessCoordinator } from "../admission/coordinator.ts";
import type { EdgeConfig } from "../config.ts";
import type { EdgeDeps, HttpSettings, StoreState } from "../deps.ts";
import { Dispatcher } from "../dispatch/dispatcher.ts";
import { forgetAnswersEvery } from "../dispatch/idempotency/answer-keeper.ts";
import { IdempotentDispatch } from "../dispatch/idempotency/idempotent-dispatch.ts";
import { chargedSaeCall } from "../dispatch/charged-sae-call.ts";
import { EndpointScraper } from "../fleet/endpoint-scraper.ts";
import { fetchTextOver } from "../fleet/fetch-text.ts";
import { InProcessFleet } from "../fleet/fleet.ts";
import { EdgeMetrics } from "../monitoring/edge-metrics.ts";
import type { KeyStore } from "../ports/key-store.ts";
import type { OnSettled } from "../ports/ledger.ts";
import type { Principal } from "../ports/principal.ts";
import * as settings from "../web/settings-of-config.ts";
import { createSigner } from "../web/signer.jose.ts";
import { ClosableClock, nodeClock } from "./clock.node.ts";
import { Closers } from "./closers.ts";
import { fleetMemoryOf } from "./fleet-memory.file.ts";
import { environment } from "./env.ts";
import { inferenceFront } from "./inference-front.ts";
import { openListeners, type ListenerUrls, type OpenListeners } from "./listeners.ts";
import type { LoadedConfig } from "./load-config.ts";
import { openMoney } from "./money.ts";
import { pooledRandomBytes } from "./random.node.ts";
import { Reload, type ReloadResult } from "./reload.ts";
import { NodeAnswers } from "./respond.node.ts";
import { RunningRequests } from "./running-requests.ts";
import { sha256OnNode } from "./sha256.node.ts";
import { signingKeysOf } from "./signing-keys.ts";
import { UndiciUpstream } from "./upstream.undici.ts";

export interface RunningEdge extends ListenerUrls {
  readonly logger: Logger;
  /** Refuses new requests, lets running ones finish up to `drain_timeout`, writes the journal and stops. Once. */
  close(): Promise<void>;
  /** Reads the configuration again with `load` and applies it, whole or not at all. Never rejects. */
  reload(load: () => Promise<LoadedConfig>): Promise<ReloadResult>;
  /** Makes a `close` that waits wait no longer: running requests are cut. */
  abort(): void;
}

/** Time for cut requests to reach the ledger, and for their clients to hear of it. */
const CUT_GRACE_MS = 2_000;

/** The ledger's sums over the last day are read from the database, which takes a while on a busy edge. */
const PROOF_EVERY_MS = 300_000;

/** First answers that are over are deleted. */
const FORGET_ANSWERS_EVERY_MS = 60_000;
/** What follows the configuration while the edge runs. */
interface Live {
  config: EdgeConfig;
  http: HttpSettings;
  everybody: Principal | null;
}

const liveOf = (config: EdgeConfig): Live => ({
  config,
  http: settings.httpSettings(config),
  everybody: settings.everybodyOf(config),
});

interface Assembled {
  readonly deps: EdgeDeps;
  readonly requests: RunningRequests;
  readonly answers: NodeAnswers;
  readonly prepare: (config: EdgeConfig) => Promise<() => void>;
}

const secret = (name: string): string | undefined => environment[name];

interface EdgeState {
  draining: boolean;
  store: StoreState;
  /** As last proved; null before that. */
  ledgerDifference: number | null;
}

/** Starts everything of an edge on Node. Rejects with OperatorError where the operator can mend it. */
export async function startEdge(loaded: LoadedConfig): Promise<RunningEdge> {
  const { config } = loaded;
  const live = liveOf(config);
  const logger = createLogger({
    format: config.logging.format,
    get level() {
      return live.config.logging.level;
    },
    clock: nodeClock,
    write: (line) => process.stderr.write(`${line}\n`),
    fields: { edge: config.name },
  });
  const closers = new Closers();
  const state: EdgeState = { draining: false, store: "ok", ledgerDifference: null };
  try {
    const { deps, requests, answers, prepare } = await assemble(loaded, { logger, closers, state, live });
    const listeners = await openListeners(config, deps, inferenceFront(deps, answers));
    const { baseUrl, adminUrl, metricsUrl, agentUrl } = listeners.urls;
    logger.info("the edge is ready", {
      base_url: baseUrl,
      admin_url: adminUrl,
      metrics_url: metricsUrl,
      agent_url: agentUrl,
    });
    let load = (): Promise<LoadedConfig> => Promise.resolve(loaded);
    const reload = new Reload({ logger, current: () => live.config, load: () => load(), prepare });
    return {
      ...runningEdge({ listeners, requests, answers, logger, closers, state, live }),
      reload: (from) => {
        load = from;
        return reload.request();
      },
    };
  } catch (thrown) {
    await closers.close();
    throw thrown;
  }
}

/** Every room of the edge, wired. */
async function assemble(
  loaded: LoadedConfig,
  parts: { readonly logger: Logger; readonly closers: Closers; readonly state: EdgeState; readonly live: Live },
): Promise<Assembled> {
  const { config, dataDirectory } = loaded;
  const { logger, closers, state, live } = parts;
  const clock = new ClosableClock();
  // Last of all: what waits for a machine's report, as after a cut request, must not keep the process.
  closers.add(() => clock.close());
  warnOfMissingSecrets(config, logger);
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  const signer = await createSigner({ edge: config.name, keys: await signingKeysOf(dataDirectory), clock });
  // The ledger is there before the dispatcher that listens to it.
  const listener: { onSettled: OnSettled | null } = { onSettled: null };
  const { store, limits, ledger, sharedLedger, membership, priceVersion } = await openMoney(loaded, {
    clock,
    logger,
    closers,
    onSettled: (settled) => listener.onSettled?.(settled),
  });
  const coordinator = new InProcessCoordinator({ clock, settings: settings.admissionSettings(config) });
  closers.add(() => coordinator.close());
  const memory = await fleetMemoryOf(dataDirectory, logger);
  closers.add(() => memory.written());
  const fleet = new InProcessFleet({ clock, logger, coordinator, memory, settings: settings.fleetSettings(config) });
  closers.add(() => fleet.close());
  const upstream = new UndiciUpstream();
  closers.add(() => upstream.close());
  const fetchText = fetchTextOver(upstream, clock);
  const scraping = (of: EdgeConfig): EndpointScraper => {
    const scraper = new EndpointScraper({
      clock,
      logger,
      fetchText,
      endpoints: settings.fleetSettings(of).endpoints,
      settings: settings.scrapeSettings(of),
      onScraped: (id, loads) => fleet.scraped(id, loads),
    });
    scraper.start();
    return scraper;
  };
  let scraper = scraping(config);
  closers.add(() => scraper.close());
  const metrics = new EdgeMetrics();
  let dispatchDeps = {
    clock,
    logger,
    coordinator,
    fleet,
    limits,
    ledger,
    signer,
    upstream,
    metrics,
    settings: settings.dispatchSettings(config, { priceVersion, secret }),
  };
  const dispatcher = new Dispatcher(dispatchDeps);
  listener.onSettled = dispatcher.onSettled;
  const authenticator = new StoreAuthenticator({
    clock,
    logger,
    sha256: sha256OnNode,
    memory: newVerdictMemory(settings.verdictSettings(config)),
    store: watched(store, state),
  });
  closers.add(authenticator.watch());
  closers.add(
    repeated(clock, PROOF_EVERY_MS, async () => {
      state.ledgerDifference = await ledger.difference().catch(() => null);
    }),
  );
  const idempotent = new IdempotentDispatch({
    clock,
    logger,
    store,
    limits,
    sha256: sha256OnNode,
    holder: newRequestId(pooledRandomBytes()),
    settings: () => settings.idempotencySettings(live.config),
    draining: () => state.draining,
    run: (request, writer) => dispatcher.run(request, writer),
  });
  closers.add(() => idempotent.close());
  closers.add(forgetAnswersEvery({ store, clock, logger }, FORGET_ANSWERS_EVERY_MS));
  const requests = new RunningRequests();
  const answers = new NodeAnswers();
  const deps: EdgeDeps = {
    clock,
    logger,
    randomBytes: pooledRandomBytes(),
    get settings() {
      return live.http;
    },
    authenticator,
    get everybody() {
      return live.everybody;
    },
    hostAuthenticator: authenticator,
    fleet,
    ledger: sharedLedger,
    limits,
    signer,
    standsInFor: () => sharedLedger.dead,
    placementLease: () => membership.placement,
    dispatch: { run: (request, writer) => requests.track(() => idempotent.run(request, writer)) },
    callSae: (call) => requests.track(() => chargedSaeCall(dispatchDeps, call)),
    decisionOf: (requestId, project) => dispatcher.decisionOf(requestId, project),
    latestDecisions: (count) => dispatcher.latestDecisions(count),
    priceOf: (model) => settings.priceOf(live.config, model),
    metrics,
    metricsSources: {
      coordinator,
      fleet,
      kvOccupancy: () => Promise.resolve(fleet.kvOccupancy()),
      openReservations: () => dispatcher.openReservations,
      ledgerDifference: () => state.ledgerDifference,
    },
    draining: () => state.draining,
    storeState: () => Promise.resolve(state.store),
    respond: answers.respond,
  };
  const prepare = async (next: EdgeConfig): Promise<() => void> => {
    const versions = { priceVersion: await store.priceVersion(settings.priceList(next), clock.nowMs()), secret };
    const dispatchSettings = settings.dispatchSettings(next, versions);
    return () => {
      warnOfMissingSecrets(next, logger);
      Object.assign(live, liveOf(next));
      limits.reconfigure(settings.limitDefaults(next));
      authenticator.reconfigure(settings.verdictSettings(next));
      coordinator.reconfigure(settings.admissionSettings(next));
      fleet.reconfigure(settings.fleetSettings(next));
      dispatchDeps = { ...dispatchDeps, settings: dispatchSettings };
      dispatcher.reconfigure(dispatchSettings);
      scraper.close();
      scraper = scraping(next);
    };
  };
  return { deps, requests, answers, prepare };
}

function runningEdge(parts: {
  readonly listeners: OpenListeners;
  readonly requests: RunningRequests;
  readonly answers: NodeAnswers;
  readonly logger: Logger;
  readonly closers: Closers;
  readonly state: EdgeState;
  readonly live: Live;
}): Omit<RunningEdge, "reload"> {
  const { listeners, requests, answers, logger, closers, state, live } = parts;
  const cut = new AbortController();
  let stopping: Promise<void> | null = null;
  const stop = async (): Promise<void> => {
    state.draining = true;
    const drainMs = live.config.drain_timeout;
    logger.info("draining", { running: requests.count, limit_ms: drainMs });
    if (!(await requests.idleWithin(drainMs, cut.signal))) {
      logger.warn("running requests are cut", { running: requests.count });
      const told = answers.cut(new ApiError("draining", { message: "This server ended before the answer did." }));
      await Promise.all([requests.idleWithin(CUT_GRACE_MS), within(told, CUT_GRACE_MS)]);
      listeners.breakAll();
    }
    await listeners.stop();
    await closers.close();
    logger.info("the edge has stopped");
  };
  return { ...listeners.urls, logger, close: () => (stopping ??= stop()), abort: () => cut.abort() };
}

/** Resolves with `work`, or without it after `limitMs`. */
function within(work: Promise<void>, limitMs: number): Promise<void> {
  return new Promise((resolve, reject) => {
    const timer = setTimeout(resolve, limitMs);
    void work.finally(() => clearTimeout(timer)).then(resolve, reject);
  });
}

/** Keys are checked for news each second, which tells whether the store is there. */
function watched(store: KeyStore, state: EdgeState): KeyStore {
  return {
    findKey: (keyId) => store.findKey(keyId),
    findHostByToken: (tokenSha256) => store.findHostByToken(tokenSha256),
    async keyRevision() {
      try {
        const revision = await store.keyRevision();
        state.store = "ok";
        return revision;
      } catch (thrown) {
        state.store = "away";
        throw thrown;
      }
    },
  };
}

/** Runs `work` now and again `everyMs` after each end, until the returned function is called. `work` never rejects. */
function repeated(clock: Clock, everyMs: number, work: () => Promise<void>): () => void {
  let cancel: (() => void) | null = null;
  let stopped = false;
  const turn = async (): Promise<void> => {
    await work();
    if (!stopped) cancel = clock.after(everyMs, () => void turn());
  };
  void turn();
  return () => {
    stopped = true;
    cancel?.();
  };
}

function warnOfMissingSecrets(config: EdgeConfig, logger: Logger): void {
  for (const missing of settings.missingSecrets(config, secret))
    logger.warn("an endpoint's key is not in the environment", { endpoint: missing });
}
