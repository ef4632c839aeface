import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { rmSync } from "node:fs";
import { mkdir, rm } from "node:fs/promises";
import path from "node:path";
import { Agent } from "undici";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Answer } from "../../shared/protocol/answer.ts";
import type { HourCounter, Report } from "../../shared/protocol/report.ts";
import { PROTOCOL_VERSION } from "../../shared/protocol/version.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { type HostConfig, originOf } from "../config.ts";
import { diskOf, mainMemory } from "../discovery/machine.ts";
import { configuredSaes, launcherOf } from "../launchers/launcher-of.ts";
import type { OperatorWishes } from "../ports/operator-wishes.ts";
import { AskedAttempts } from "./asked-attempts.ts";
import { CounterDigest } from "./counter-digest.ts";
import { EdgeKeys } from "./edge-keys.ts";
import { EndedStore } from "./ended-store.ts";
import { lockFolder } from "./folder-lock.ts";
import { FormerLife, noteLife } from "./former-life.ts";
import { Front } from "./front.ts";
import { OperatorChanges } from "./operator-changes.ts";
import { OperatorRoutes } from "./operator-routes.ts";
import { operatorToken } from "./operator-token.ts";
import { PlacementOrders } from "./placement-orders.ts";
import { Replica } from "./replica.ts";
import { ReplayMemory } from "./replay-memory.ts";
import { type DeliveredReport, deliverReport } from "./report-delivery.ts";
import { Reporter } from "./reporter.ts";
import { keepTwoRunFolders, makeRunFolder } from "./run-folder.ts";
import { TokenCheck } from "./token-check.ts";

/** Ended requests in one report; the rest follows at once. */
const ENDED_PER_REPORT = 500;
const LAST_ACCOUNTS_MS = 2_000;
const SYNC_EVERY_MS = 1_000;

export interface RunningHost {
  readonly port: number;
  /** Ends: new requests are refused, running ones go on up to `drain_timeout`, then engines stop in order. */
  stop(): Promise<void>;
  /** Ends the engines at once and leaves nothing behind, for a process that exits right after. */
  abort(): void;
}

export interface HostDeps {
  readonly config: HostConfig;
  readonly clock: Clock;
  readonly logger: Logger;
  /** The program that engine processes are started from. */
  readonly program: string;
}

/** Puts the rooms of a host together and starts it; resolves when it listens. Engines go on loading after that. */
export async function startHost(deps: HostDeps): Promise<RunningHost> {
  const host = new Host(deps);
  try {
    await host.start();
  } catch (error) {
    await host.abandon();
    throw error;
  }
  return host;
}

interface ReplicaParts {
  readonly runFolder: string;
  readonly ended: EndedStore;
  readonly changes: OperatorChanges;
}

class Host implements RunningHost {
  readonly #deps: HostDeps;
  readonly #epoch: number;
  readonly #replicas = new Map<string, Replica>();
  readonly #dispatcher = new Agent();
  #reporters: Reporter[] = [];
  #digests = new Map<string, CounterDigest>();
  readonly #standsInFor = new Map<string, ReadonlySet<string>>();
  #asked: AskedAttempts | null = null;
  #front: Front | null = null;
  #keys: EdgeKeys | null = null;
  #ended: EndedStore | null = null;
  #orders: PlacementOrders | null = null;
  #runFolder: string | null = null;
  #seq = 0;
  #origin = "";
  #cancelSync = (): void => undefined;
  #unlock = (): void => undefined;
  #stopping: Promise<void> | null = null;
  port = 0;

  constructor(deps: HostDeps) {
    this.#deps = deps;
    this.#epoch = deps.clock.nowMs();
  }

  async start(): Promise<void> {
    const { clock, config, logger } = this.#deps;
    const folder = config.data;
    await mkdir(folder, { recursive: true, mode: 0o700 });
    // Before anything in it is touched: another host's engines live by what is noted there.
    this.#unlock = await lockFolder(folder);
    this.#ended = new EndedStore({ file: path.join(folder, "ended.ndjson"), logger });
    this.#orders = new PlacementOrders({ file: path.join(folder, "placement.json"), logger });
    this.#keys = await EdgeKeys.open({
      host: config.host,
      file: path.join(folder, "edge-keys.json"),
      fingerprints: config.edge_key_fingerprints,
      logger,
    });
    this.#runFolder = await makeRunFolder();
    const changes = await OperatorChanges.open({ file: path.join(folder, "operator-changes.json"), logger });
    this.#makeReplicas({ runFolder: this.#runFolder, ended: this.#ended, changes });
    this.#front = new Front({
      host: config.host,
      replicas: this.#replicas,
      tokens: new TokenCheck({ host: config.host, keys: this.#keys, replays: new ReplayMemory(), clock }),
      operator: new OperatorRoutes({
        replicas: this.#replicas,
        changes,
        logger,
        configuredSaes: (name) => config.models.filter((model) => model.name === name).flatMap(configuredSaes),
        token: await operatorToken(path.join(folder, "operator-token")),
        maxBodyBytes: config.max_body_bytes,
      }),
      maxBodyBytes: config.max_body_bytes,
      logger,
      clock,
    });
    this.port = await listen(this.#front, config.listenAddress);
    this.#origin = originOf(config, this.port);
    await noteLife(this.#runFolder, { epoch: this.#epoch, replicas: config.models.map(({ name }) => name) });
    const earlier = await keepTwoRunFolders(path.join(folder, "run-folder"), this.#runFolder);
    const former = earlier === null ? null : await FormerLife.open(earlier, clock.nowMs());
    this.#asked = new AskedAttempts({
      epoch: this.#epoch,
      replicas: this.#replicas,
      ended: this.#ended,
      front: this.#front,
      former,
      clock,
    });
    for (const replica of this.#replicas.values()) replica.start();
    this.#makeReporters();
    for (const reporter of this.#reporters) reporter.start();
    this.#syncRegularly(this.#ended);
  }

  async stop(): Promise<void> {
    this.#stopping ??= this.#stop();
    return this.#stopping;
  }

  abort(): void {
    for (const replica of this.#replicas.values()) replica.kill();
    if (this.#runFolder !== null) rmSync(this.#runFolder, { recursive: true, force: true });
    this.#unlock();
  }

  /** Gives back what a failed start took. */
  async abandon(): Promise<void> {
    this.#ended?.close();
    await this.#dispatcher.close();
    if (this.#runFolder !== null) await rm(this.#runFolder, { recursive: true, force: true });
    this.#unlock();
  }

  async #stop(): Promise<void> {
    const { config, logger } = this.#deps;
    logger.info("draining", { in_flight: this.#inFlight() });
    this.#front?.drain();
    for (const replica of this.#replicas.values()) replica.drain();
    this.#changed();
    await this.#untilIdle(config.drain_timeout);
    // What still runs is cancelled, so that its engine can give an exact account before it ends.
    this.#front?.server.closeAllConnections();
    await this.#untilIdle(LAST_ACCOUNTS_MS);
    for (const replica of this.#replicas.values()) await replica.stop();
    for (const reporter of this.#reporters) await reporter.stop();
    await this.#lastReports();
    await this.#asked?.close();
    this.#cancelSync();
    this.#front?.server.close();
    await this.abandon();
    logger.info("stopped", {});
  }

  #makeReplicas({ runFolder, ended, changes }: ReplicaParts): void {
    const { clock, config, logger, program } = this.#deps;
    config.models.forEach((model, place) => {
      tellChanges(model.name, changes.of(model.name), logger);
      const replica = new Replica({
        name: model.name,
        slots: model.slots ?? config.slots,
        maxPending: model.max_pending ?? config.max_pending,
        launcher: launcherOf(model, config, { program, wishes: () => changes.settled(model.name) }),
        settings: {
          startupTimeoutMs: config.startup_timeout,
          restartBaseMs: config.restart_base,
          restartMaxMs: config.restart_max,
        },
        runFolder,
        socketName: `e${place}`,
        epoch: this.#epoch,
        clock,
        logger,
        record: (entry) => void ended.add(entry),
        onChange: () => this.#changed(),
      });
      this.#replicas.set(model.name, replica);
    });
  }

  #makeReporters(): void {
    const { clock, config, logger } = this.#deps;
    this.#reporters = config.servers.map(
      (server) =>
        new Reporter({
          server,
          heartbeatMs: config.heartbeat_interval,
          reconnectBaseMs: config.reconnect_base,
          reconnectMaxMs: config.reconnect_max,
          clock,
          logger,
          random: () => randomBytes(4).readUInt32LE() / 2 ** 32,
          deliver: () => this.#deliver(server),
        }),
    );
  }

  #changed(): void {
    for (const reporter of this.#reporters) reporter.changed();
  }

  #inFlight(): number {
    let sum = 0;
    for (const replica of this.#replicas.values()) sum += replica.running.size;
    return sum;
  }

  async #untilIdle(limitMs: number): Promise<void> {
    const { clock } = this.#deps;
    const untilMs = clock.monotonicMs() + limitMs;
    while (this.#inFlight() > 0 && clock.monotonicMs() < untilMs)
      await new Promise<void>((resolve) => clock.after(50, resolve));
  }

  /** One report to one edge, and the use of its answer. */
  async #deliver(server: string): Promise<{ answer: Answer; more: boolean }> {
    const { clock, config } = this.#deps;
    const [keys, ended] = [this.#keys, this.#ended];
    if (keys === null || ended === null || config.token === null) throw new Error("not started");
    const digest = this.#digests.get(server) ?? new CounterDigest();
    this.#digests.set(server, digest);
    const mine = this.#wantedBy(server);
    const counters = digest.changed(ended.counters(mine), clock.monotonicMs());
    const report = await this.#report(ended.waiting(mine, ENDED_PER_REPORT), counters);
    const sentAtMs = clock.nowMs();
    let delivered: DeliveredReport;
    try {
      delivered = await deliverReport({ server, token: config.token, report, dispatcher: this.#dispatcher });
    } catch (error) {
      digest.reset();
      throw error;
    }
    if (!(await keys.accept(server, delivered, sentAtMs, clock.nowMs()))) {
      // Whoever answered may have kept the report to himself.
      digest.reset();
      throw new Error("the answer is not the trusted edge's");
    }
    const { answer } = delivered;
    ended.acknowledge(answer.ack_ended, mine);
    this.#standsInFor.set(server, new Set(answer.stands_in_for ?? []));
    if (answer.desired !== null) this.#orders?.take(server, answer.desired);
    for (const asked of answer.ask_ended) this.#asked?.tell(answer.edge, asked);
    return { answer, more: report.ended.length === ENDED_PER_REPORT };
  }

  /**
   * An edge gets the requests it sent; those of names that no configured edge has, since someone must have them; and
   * those of dead edges of its database, for which it answers.
   */
  #wantedBy(server: string): (edge: string) => boolean {
    const name = this.#keys?.edgeOf(server) ?? null;
    // Before its first answer nobody knows whose it wants; that comes with the next report.
    if (name === null) return () => false;
    const others = new Set(this.#deps.config.servers.map((other) => this.#keys?.edgeOf(other) ?? null));
    const dead = this.#standsInFor.get(server);
    return (edge) => edge === name || dead?.has(edge) === true || !others.has(edge);
  }

  async #report(ended: Report["ended"], counters: HourCounter[]): Promise<Report> {
    const { clock, config } = this.#deps;
    const [memory, disk] = await Promise.all([mainMemory(), diskOf(config.data)]);
    return {
      protocol: PROTOCOL_VERSION,
      host: config.host,
      epoch: this.#epoch,
      seq: this.#seq++,
      at: clock.nowMs(),
      url: this.#origin,
      labels: config.labels,
      replicas: [...this.#replicas.values()].map((replica) => replica.report()),
      ended,
      counters,
      gpus: [],
      memory,
      disk,
      weights: config.models.flatMap(({ source }) => (source === undefined ? [] : [source])),
      draining: this.#front?.draining ?? false,
      answers_refused: this.#keys?.refusals ?? 0,
    };
  }

  /** What ended while draining must reach the edges before this process is gone; what does not is on disk. */
  async #lastReports(): Promise<void> {
    await Promise.allSettled(this.#deps.config.servers.map((server) => this.#deliver(server)));
    await this.#ended?.sync();
  }

  #syncRegularly(ended: EndedStore): void {
    this.#cancelSync = this.#deps.clock.after(SYNC_EVERY_MS, () => {
      void ended.sync();
      this.#syncRegularly(ended);
    });
  }
}

const idsOf = (things: readonly { readonly id: string }[]): string => things.map(({ id }) => id).join(",");

function tellChanges(replica: string, wishes: OperatorWishes, logger: Logger): void {
  const { attached, detached, watch_lists: lists } = wishes;
  if (attached.length + detached.length + lists.length === 0) return;
  logger.info("an operator's changes apply", {
    replica,
    attached: idsOf(attached),
    detached: detached.join(","),
    watch_lists: idsOf(lists),
  });
}

async function listen(front: Front, { address, port }: { address: string; port: number }): Promise<number> {
  front.server.listen(port, address);
  await once(front.server, "listening");
  const bound = front.server.address();
  return typeof bound === "object" && bound !== null ? bound.port : port;
}
