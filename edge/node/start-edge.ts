import { randomBytes } from "node:crypto";
import { mkdir } from "node:fs/promises";
import path from "node:path";
import { createLogger, type Logger } from "../../shared/logging/logger.ts";
import { sha256 } from "../accounts/sha256.ts";
import { StoreAuthenticator } from "../accounts/store-authenticator.ts";
import { InProcessCoordinator } from "../admission/coordinator.ts";
import type { EdgeConfig } from "../config.ts";
import type { EdgeDeps, Readiness } from "../deps.ts";
import { Dispatcher } from "../dispatch/dispatcher.ts";
import { InProcessFleet } from "../fleet/fleet.ts";
import { MemoryLimits } from "../limits/limits.memory.ts";
import { spendingByScope } from "../limits/scopes.ts";
import { EdgeMetrics } from "../monitoring/edge-metrics.ts";
import type { KeyStore } from "../ports/key-store.ts";
import type { OnSettled } from "../ports/ledger.ts";
import { JournaledLedger } from "../usage/journaled-ledger.ts";
import * as settings from "../web/settings-of-config.ts";
import { createSigner } from "../web/signer.jose.ts";
import { nodeClock } from "./clock.node.ts";
import { openStore } from "./database.ts";
import { environment } from "./env.ts";
import { FileJournal } from "./journal.file.ts";
import { openListeners, type ListenerUrls } from "./listeners.ts";
import type { LoadedConfig } from "./load-config.ts";
import { respondOnNode } from "./respond.node.ts";
import { RunningRequests } from "./running-requests.ts";
import { signingKeysOf } from "./signing-keys.ts";
import { UndiciUpstream } from "./upstream.undici.ts";
import { packageVersion } from "./version.ts";

export interface RunningEdge extends ListenerUrls {
  readonly logger: Logger;
  /** Refuses new requests, lets running ones finish up to `drain_timeout`, writes the journal and stops. Once. */
  close(): Promise<void>;
  /** Makes a `close` that waits wait no longer: running requests are cut. */
  abort(): void;
}

/** Of the data directory; `usage export` reads it too. */
const JOURNAL_FOLDER = "journal";
/** Time for cut requests to reach the ledger. */
const CUT_GRACE_MS = 2_000;

/** Starts everything of an edge on Node. Rejects with OperatorError where the operator can mend it. */
export async function startEdge(loaded: LoadedConfig): Promise<RunningEdge> {
  const closers = new Closers();
  try {
    return await start(loaded, closers);
  } catch (thrown) {
    await closers.close();
    throw thrown;
  }
}

async function start({ config, dataDirectory, databaseUrl, databaseAuthToken }: LoadedConfig, closers: Closers) {
  const clock = nodeClock;
  const logger = createLogger({
    ...config.logging,
    clock,
    write: (line) => process.stderr.write(`${line}\n`),
    fields: { edge: config.name },
  });
  warnOfMissingSecrets(config, logger);
  await mkdir(dataDirectory, { recursive: true, mode: 0o700 });
  const signer = await createSigner({ edge: config.name, keys: await signingKeysOf(dataDirectory), clock });
  const store = await openStore({ databaseUrl, authToken: databaseAuthToken, clock, logger });
  closers.add(() => store.close());
  const journal = await FileJournal.open({ folder: path.join(dataDirectory, JOURNAL_FOLDER) });
  let closeJournal = (): Promise<void> => journal.close();
  closers.add(() => closeJournal());

  const limits = new MemoryLimits(clock, settings.limitDefaults(config));
  let tellReservations: OnSettled = () => undefined;
  const ledger = new JournaledLedger({
    clock,
    logger,
    journal,
    store,
    edge: config.name,
    settings: settings.ledgerSettings(config),
    onSettled: (settled) => tellReservations(settled),
    onAdjusted: ({ account, project, keyId, nanoUsd }) => {
      const [spent] = spendingByScope([{ account, project, keyId, costNanoUsd: nanoUsd.toString() }]).values();
      limits
        .seedSpent(account, spent ?? {})
        .catch((thrown: unknown) => logger.error("a budget missed money", {}, thrown));
    },
  });
  const priceVersion = await store.priceVersion(settings.priceList(config), clock.nowMs());
  await ledger.start();
  // After the journal's rows went to the database, or budgets would miss what a former run left in it.
  for (const [account, spent] of spendingByScope(await store.spent())) await limits.seedSpent(account, spent);
  closeJournal = () => ledger.close();

  const coordinator = new InProcessCoordinator({ clock, settings: settings.admissionSettings(config) });
  closers.add(() => coordinator.close());
  const fleet = new InProcessFleet({ clock, logger, coordinator, settings: settings.fleetSettings(config) });
  closers.add(() => fleet.close());
  const upstream = new UndiciUpstream();
  closers.add(() => upstream.close());
  const metrics = new EdgeMetrics();
  const dispatcher = new Dispatcher({
    clock,
    logger,
    coordinator,
    limits,
    ledger,
    signer,
    upstream,
    metrics,
    settings: settings.dispatchSettings(config, { priceVersion, secret: (name) => environment[name] }),
  });
  tellReservations = dispatcher.onSettled;

  const state: { draining: boolean; store: Readiness["store"] } = { draining: false, store: "ok" };
  const authenticator = new StoreAuthenticator({
    clock,
    logger,
    sha256,
    settings: settings.verdictSettings(config),
    store: watched(store, (reachable) => {
      state.store = reachable ? "ok" : "away";
    }),
  });
  closers.add(authenticator.watch());
  const requests = new RunningRequests(dispatcher);
  const deps: EdgeDeps = {
    clock,
    logger,
    randomBytes,
    settings: settings.httpSettings(config, packageVersion()),
    authenticator,
    everybody: settings.everybodyOf(config),
    hostAuthenticator: authenticator,
    fleet,
    ledger,
    signer,
    dispatch: requests,
    priceOf: (model) => settings.priceOf(config, model),
    metrics,
    metricsSources: {
      coordinator,
      fleet,
      kvOccupancy: () => Promise.resolve(fleet.kvOccupancy()),
      openReservations: () => dispatcher.openReservations,
    },
    readiness: () => state,
    respond: respondOnNode,
  };
  const listeners = await openListeners(config, deps);
  const { urls } = listeners;
  logger.info("the edge is ready", {
    base_url: urls.baseUrl,
    admin_url: urls.adminUrl,
    metrics_url: urls.metricsUrl,
    agent_url: urls.agentUrl,
  });

  let cut: () => void = () => undefined;
  const wasCut = new Promise<void>((resolve) => {
    cut = resolve;
  });
  const stop = async (): Promise<void> => {
    state.draining = true;
    logger.info("draining", { running: requests.count, limit_ms: config.drain_timeout });
    const idle = await Promise.race([requests.idleWithin(config.drain_timeout), wasCut.then(() => false)]);
    if (!idle) {
      logger.warn("running requests are cut", { running: requests.count });
      listeners.breakAll();
      await requests.idleWithin(CUT_GRACE_MS);
    }
    await listeners.stop();
    await closers.close();
    logger.info("the edge has stopped");
  };
  let stopping: Promise<void> | null = null;
  return { ...urls, logger, close: () => (stopping ??= stop()), abort: cut };
}

/** What was opened, closed in the opposite order; a fault in one does not keep the others open. */
class Closers {
  readonly #steps: (() => void | Promise<void>)[] = [];

  add(step: () => void | Promise<void>): void {
    this.#steps.push(step);
  }

  async close(): Promise<void> {
    const faults: unknown[] = [];
    for (let step = this.#steps.pop(); step !== undefined; step = this.#steps.pop()) {
      try {
        await step();
      } catch (thrown) {
        faults.push(thrown);
      }
    }
    if (faults.length > 0) throw new AggregateError(faults, "some parts did not close");
  }
}

/** Keys are checked each second, which tells whether the store is there. */
function watched(store: KeyStore, tell: (reachable: boolean) => void): KeyStore {
  return {
    findKey: (keyId) => store.findKey(keyId),
    findHostByToken: (tokenSha256) => store.findHostByToken(tokenSha256),
    async keyRevision() {
      try {
        const revision = await store.keyRevision();
        tell(true);
        return revision;
      } catch (thrown) {
        tell(false);
        throw thrown;
      }
    },
  };
}

function warnOfMissingSecrets(config: EdgeConfig, logger: Logger): void {
  for (const missing of settings.missingSecrets(config, (name) => environment[name]))
    logger.warn("an endpoint's key is not in the environment", { endpoint: missing });
}
