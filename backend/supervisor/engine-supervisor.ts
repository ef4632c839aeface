import { type ChildProcess, spawn } from "node:child_process";
import { mkdir, rm } from "node:fs/promises";
import { createConnection } from "node:net";
import path from "node:path";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { SECRET_NAMES } from "../host-environment.ts";
import type { EngineEvent } from "../ports/engine-events.ts";
import { engineFarewellSchema, UNUSABLE_EXIT_CODE } from "../ports/engine-process.ts";
import { relayEngineLog } from "./engine-log.ts";
import { EventFollower } from "./event-follower.ts";
import type { Launcher } from "./launcher.ts";
import {
  type Lifecycle,
  type LifecycleEffect,
  type LifecycleEvent,
  type LifecycleSettings,
  STOPPED,
  step,
} from "./lifecycle.ts";

/** Between SIGTERM and SIGKILL. */
const SOFT_END_MS = 5_000;
/** From the first request that did not reach an engine to the look whether it listens: an ended one is known by then. */
const SUSPICION_MS = 1_000;

export interface SupervisorListener {
  /** Phase or reason changed. */
  onChange(): void;
  /** `instance` counts the processes of this replica; an event never comes after its instance's end. */
  onEvent(event: EngineEvent, instance: number): void;
  onInstanceEnd(instance: number, reason: string): void;
}

export interface SupervisorDeps {
  readonly launcher: Launcher;
  /** Folder for sockets, entered by this user only; short, since a socket's path has about 100 bytes. */
  readonly runFolder: string;
  /** Unique in `runFolder`, short. */
  readonly socketName: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly settings: LifecycleSettings;
  readonly listener: SupervisorListener;
}

/** Where the engine of one start listens. */
export const engineSocketPath = (runFolder: string, socketName: string, instance: number): string =>
  path.join(runFolder, `${socketName}-${instance}.sock`);

function withoutSecrets(environment: NodeJS.ProcessEnv): NodeJS.ProcessEnv {
  const rest = { ...environment };
  for (const name of SECRET_NAMES) delete rest[name];
  return rest;
}

/** Carries out the life cycle of one replica: processes, signals, timers and the events stream. */
export class EngineSupervisor {
  readonly #deps: SupervisorDeps;
  #state: Lifecycle = STOPPED;
  #instance = 0;
  #child: ChildProcess | null = null;
  #socketPath: string | null = null;
  #disarm: () => void = () => undefined;
  #whenStopped: (() => void)[] = [];
  #suspected = 0;

  constructor(deps: SupervisorDeps) {
    this.#deps = deps;
  }

  get state(): Lifecycle {
    return this.#state;
  }

  /** The engine that takes requests now; null when none is ready. */
  get current(): { readonly instance: number; readonly socketPath: string } | null {
    if (this.#state.phase !== "ready" && this.#state.phase !== "draining") return null;
    return this.#socketPath === null ? null : { instance: this.#instance, socketPath: this.#socketPath };
  }

  start(): void {
    this.#take({ type: "start" });
  }

  drain(): void {
    this.#take({ type: "drain" });
  }

  /** Somebody could not connect to this engine. One that runs but does not listen any more is started again. */
  suspect(instance: number): void {
    if (this.#suspected === instance || this.current?.instance !== instance) return;
    this.#suspected = instance;
    this.#deps.clock.after(SUSPICION_MS, () => {
      this.#suspected = 0;
      const { current } = this;
      if (current === null || current.instance !== instance) return;
      const probe = createConnection(current.socketPath, () => probe.destroy());
      probe.once("error", () => {
        if (this.current?.instance === instance) this.#take({ type: "fell_silent" });
      });
    });
  }

  /** Ends the engine without a word, for a host that is about to exit. */
  kill(): void {
    this.#child?.kill("SIGKILL");
  }

  /** Ends the engine, softly first; resolves when it is gone. */
  stop(): Promise<void> {
    return new Promise((resolve) => {
      this.#whenStopped.push(resolve);
      this.#take({ type: "stop" });
    });
  }

  #take(event: LifecycleEvent): void {
    const before = this.#state;
    const { next, effects } = step(before, event, this.#deps.clock.monotonicMs(), this.#deps.settings);
    this.#state = next;
    for (const effect of effects) this.#carryOut(effect);
    if (next.phase !== before.phase || next.reason !== before.reason) this.#deps.listener.onChange();
    if (this.#state.phase !== "stopped") return;
    for (const resolve of this.#whenStopped.splice(0)) resolve();
  }

  #carryOut(effect: LifecycleEffect): void {
    const { clock } = this.#deps;
    switch (effect.type) {
      case "spawn":
        this.#instance++;
        void this.#launch(this.#instance);
        return;
      case "end_softly":
        this.#endSoftly();
        return;
      case "end_hard":
        this.#child?.kill("SIGKILL");
        return;
      case "arm_startup":
        this.#arm(clock.after(effect.delayMs, () => this.#take({ type: "startup_timed_out" })));
        return;
      case "arm_retry":
        this.#arm(clock.after(effect.delayMs, () => this.#take({ type: "retry_due" })));
        return;
      case "disarm":
        this.#disarm();
        return;
    }
  }

  #arm(disarm: () => void): void {
    this.#disarm();
    this.#disarm = disarm;
  }

  #endSoftly(): void {
    const child = this.#child;
    if (child === null) return;
    child.kill("SIGTERM");
    const cancel = this.#deps.clock.after(SOFT_END_MS, () => child.kill("SIGKILL"));
    child.once("exit", cancel);
  }

  async #launch(instance: number): Promise<void> {
    const { launcher, logger, runFolder, socketName } = this.#deps;
    const socketPath = engineSocketPath(runFolder, socketName, instance);
    try {
      const fault = await launcher.findFault();
      if (fault !== null) {
        this.#ended(instance, fault, true);
        return;
      }
      // Something that tidies temporary files may have taken it away.
      await mkdir(runFolder, { recursive: true, mode: 0o700 });
      const plan = await launcher.prepare(socketPath);
      if (this.#state.phase !== "starting") {
        this.#ended(instance, "stopped before it was started", false);
        return;
      }
      const child = spawn(plan.command, plan.arguments, {
        env: { ...withoutSecrets(process.env), ...plan.environment },
        // A group of its own: the terminal's Ctrl-C is the host's to handle, and the IPC channel ends it with the host.
        detached: true,
        stdio: ["ignore", "pipe", "pipe", "ipc"],
      });
      this.#socketPath = socketPath;
      this.#watch(child, instance, socketPath);
    } catch (error) {
      logger.error("engine could not be started", {}, error);
      this.#ended(instance, "could not be started", false);
    }
  }

  #watch(child: ChildProcess, instance: number, socketPath: string): void {
    const { clock, logger } = this.#deps;
    this.#child = child;
    logger.info("engine started", { pid: child.pid, instance });
    if (child.stdout !== null) relayEngineLog(child.stdout, logger);
    if (child.stderr !== null) relayEngineLog(child.stderr, logger);
    let farewell: string | null = null;
    child.on("message", (message) => {
      const parsed = engineFarewellSchema.safeParse(message);
      if (parsed.success) farewell = parsed.data.reason;
    });
    const events = new EventFollower({
      socketPath,
      clock,
      logger,
      onEvent: (event) => {
        this.#deps.listener.onEvent(event, instance);
        if (event.type === "ready") this.#take({ type: "ready" });
      },
      onSilence: () => this.#take({ type: "fell_silent" }),
    });
    let over = false;
    const end = (reason: string, unusable: boolean): void => {
      if (over) return;
      over = true;
      void this.#afterProcess(events, socketPath, () => this.#ended(instance, reason, unusable));
    };
    child.once("error", (error) => end(`could not be started: ${error.message}`, false));
    child.once("exit", (code, signal) =>
      end(
        farewell ?? (signal === null ? `ended with code ${code}` : `was ended by ${signal}`),
        code === UNUSABLE_EXIT_CODE,
      ),
    );
  }

  async #afterProcess(events: EventFollower, socketPath: string, done: () => void): Promise<void> {
    await events.finish();
    await rm(socketPath, { force: true });
    this.#child = null;
    this.#socketPath = null;
    done();
  }

  #ended(instance: number, reason: string, unusable: boolean): void {
    const wanted = this.#state.phase === "draining";
    if (!wanted) this.#deps.logger.error("engine ended", { instance, reason });
    this.#deps.listener.onInstanceEnd(instance, reason);
    this.#take({ type: "ended", reason, unusable });
  }
}
