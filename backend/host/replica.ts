import { readFileSync, rmSync } from "node:fs";
import type { Logger } from "../../shared/logging/logger.ts";
import type { EndedRequest, ReplicaReport, ReplicaState } from "../../shared/protocol/report.ts";
import type { Clock } from "../../shared/time/clock.ts";
import { type AccountBoard, accountBoardPath, readAccountBoard } from "../ports/account-board.ts";
import type { EngineEvent, EngineLoad, EngineReady } from "../ports/engine-events.ts";
import { EngineSupervisor, engineSocketPath } from "../supervisor/engine-supervisor.ts";
import type { Launcher } from "../supervisor/launcher.ts";
import type { Lifecycle, LifecycleSettings } from "../supervisor/lifecycle.ts";
import { RunningRequests } from "./running-requests.ts";

export interface ReplicaOptions {
  /** Id and public model name. */
  readonly name: string;
  readonly slots: number;
  readonly maxPending: number;
  readonly launcher: Launcher;
  readonly settings: LifecycleSettings;
  readonly runFolder: string;
  readonly socketName: string;
  readonly epoch: number;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly record: (entry: EndedRequest) => void;
  readonly onChange: () => void;
}

export interface EngineAddress {
  readonly instance: number;
  readonly socketPath: string;
}

/** One model on this host: its engine process, what that says of itself, and the requests it works on. */
export class Replica {
  readonly #options: ReplicaOptions;
  readonly #supervisor: EngineSupervisor;
  readonly running: RunningRequests;
  readonly #waiting = new Set<() => void>();
  #startedAtMs = 0;
  #startMs: number | null = null;
  #ready: EngineReady | null = null;
  #load: EngineLoad | null = null;

  constructor(options: ReplicaOptions) {
    this.#options = options;
    const logger = options.logger.with({ replica: options.name });
    this.running = new RunningRequests({
      replica: options.name,
      epoch: options.epoch,
      clock: options.clock,
      record: options.record,
      onChange: options.onChange,
      readBoard: (instance) => this.#readBoard(instance),
    });
    this.#supervisor = new EngineSupervisor({
      launcher: options.launcher,
      runFolder: options.runFolder,
      socketName: options.socketName,
      clock: options.clock,
      logger,
      settings: options.settings,
      listener: {
        onChange: () => {
          logger.info("replica state", { state: this.state, reason: this.lifecycle.reason ?? undefined });
          this.#noteStart();
          for (const look of this.#waiting) look();
          options.onChange();
        },
        onEvent: (event) => this.#onEvent(event),
        onInstanceEnd: (instance) => {
          this.#load = null;
          this.running.onInstanceEnd(instance);
          rmSync(this.#boardPath(instance), { force: true });
        },
      },
    });
  }

  get name(): string {
    return this.#options.name;
  }

  get maxInFlight(): number {
    return this.slots + this.#options.maxPending;
  }

  get slots(): number {
    return this.#ready?.slots ?? this.#options.slots;
  }

  get lifecycle(): Lifecycle {
    return this.#supervisor.state;
  }

  get state(): ReplicaState {
    const { phase } = this.lifecycle;
    return phase === "backing_off" ? "starting" : phase;
  }

  /** The engine that takes requests now. */
  get engine(): EngineAddress | null {
    return this.#supervisor.current;
  }

  /**
   * An engine that takes requests, of a later start than `instance`. One that is back within `limitMs`, as far as its
   * last start tells, is waited for; null when there is none and none is expected, or too many wait already.
   */
  engineAfter(instance: number, limitMs: number): Promise<EngineAddress | null> {
    const ready = (): EngineAddress | null => {
      const { engine } = this;
      return this.state === "ready" && engine !== null && engine.instance > instance ? engine : null;
    };
    const now = ready();
    if (now !== null || !this.#isExpectedWithin(limitMs) || this.#waiting.size >= this.maxInFlight)
      return Promise.resolve(now);
    return new Promise((resolve) => {
      const end = (engine: EngineAddress | null): void => {
        cancel();
        this.#waiting.delete(look);
        resolve(engine);
      };
      const cancel = this.#options.clock.after(limitMs, () => end(null));
      const look = (): void => {
        const engine = ready();
        if (engine !== null || !this.#isExpectedWithin(limitMs)) end(engine);
      };
      this.#waiting.add(look);
    });
  }

  /** A request did not reach this engine: looks after a while whether it still listens, and ends it if not. */
  suspect(instance: number): void {
    this.#supervisor.suspect(instance);
  }

  /** Whole seconds until the next start is due; 1 when that is not known. */
  retryInSeconds(): number {
    const { retryAtMs } = this.lifecycle;
    if (retryAtMs === null) return 1;
    return Math.max(1, Math.ceil((retryAtMs - this.#options.clock.monotonicMs()) / 1_000) + 1);
  }

  start(): void {
    this.#supervisor.start();
  }

  drain(): void {
    this.#supervisor.drain();
  }

  stop(): Promise<void> {
    return this.#supervisor.stop();
  }

  /** Ends its engine without a word. */
  kill(): void {
    this.#supervisor.kill();
  }

  report(): ReplicaReport {
    const load = this.#load;
    const inFlightByEdge = this.running.byEdge();
    return {
      id: this.name,
      model: this.name,
      engine: this.#ready?.engine ?? this.#options.launcher.engine,
      state: this.state,
      reason: this.lifecycle.reason ?? this.#refusedSaes(),
      slots: this.slots,
      in_flight: Object.values(inFlightByEdge).reduce((sum, count) => sum + count, 0),
      in_flight_by_edge: inFlightByEdge,
      waiting: load?.waiting ?? 0,
      free_kv_cells: load?.free_kv_cells ?? 0,
      total_kv_cells: load?.total_kv_cells ?? 0,
      tokens_per_second: load?.tokens_per_second ?? 0,
      prefill_tokens_per_second: load?.prefill_tokens_per_second ?? 0,
      ...(load?.speculation === undefined ? {} : { speculation: load.speculation }),
      context_length: this.#ready?.context_length ?? 0,
      capabilities: this.#ready?.capabilities ?? [],
      saes: this.#ready?.saes ?? [],
      ...(this.#ready?.profiles === undefined ? {} : { profiles: this.#ready.profiles }),
    };
  }

  #boardPath(instance: number): string {
    const { runFolder, socketName } = this.#options;
    return accountBoardPath(engineSocketPath(runFolder, socketName, instance));
  }

  /** In the call: what is decided with it must not wait, and it happens at an engine's death only. */
  #readBoard(instance: number): AccountBoard | null {
    try {
      return readAccountBoard(readFileSync(this.#boardPath(instance)));
    } catch {
      return null;
    }
  }

  #refusedSaes(): string | null {
    const refused = this.#ready?.refused_saes ?? [];
    return refused.length === 0
      ? null
      : refused.map(({ id, reason }) => `SAE ${id} is not served: ${reason}`).join("; ");
  }

  #noteStart(): void {
    const nowMs = this.#options.clock.monotonicMs();
    const { phase } = this.lifecycle;
    if (phase === "starting") this.#startedAtMs = nowMs;
    if (phase === "ready") this.#startMs = nowMs - this.#startedAtMs;
  }

  /** False before the first start is over: how long that takes is not known. */
  #isExpectedWithin(limitMs: number): boolean {
    const { phase, retryAtMs } = this.lifecycle;
    if (this.#startMs === null) return false;
    if (phase === "ready") return true;
    if (phase === "starting") return this.#startMs <= limitMs;
    return phase === "backing_off" && (retryAtMs ?? 0) - this.#options.clock.monotonicMs() + this.#startMs <= limitMs;
  }

  #onEvent(event: EngineEvent): void {
    switch (event.type) {
      case "ready":
        this.#ready = event;
        this.#options.onChange();
        return;
      case "load": {
        const changed = this.#load?.waiting !== event.waiting;
        this.#load = event;
        this.running.onLoad(event);
        if (changed) this.#options.onChange();
        return;
      }
      case "ended":
        this.running.onEnded(event);
        return;
    }
  }
}
