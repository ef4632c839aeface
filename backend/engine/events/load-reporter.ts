import type { Clock } from "../../../shared/time/clock.ts";
import type { EngineLoad } from "../../ports/engine-events.ts";

const SHORTEST_MS = 100;
const LONGEST_MS = 1_000;

/** Publishes the load on every change, at most every 100 ms, and once a second without any. */
export class LoadReporter {
  readonly #clock: Clock;
  readonly #read: () => EngineLoad;
  readonly #publish: (load: EngineLoad) => void;
  #lastMs = -Infinity;
  #dueMs = Infinity;
  #cancel: (() => void) | null = null;
  #stopped = true;

  constructor(clock: Clock, read: () => EngineLoad, publish: (load: EngineLoad) => void) {
    this.#clock = clock;
    this.#read = read;
    this.#publish = publish;
  }

  start(): void {
    this.#stopped = false;
    this.#send();
  }

  stop(): void {
    this.#stopped = true;
    this.#cancel?.();
    this.#cancel = null;
  }

  /** A change in a burst waits for the shortest interval, so that one report carries the whole burst. */
  changed(): void {
    if (!this.#stopped) this.#schedule(this.#lastMs + SHORTEST_MS);
  }

  #schedule(dueMs: number): void {
    if (this.#cancel !== null && this.#dueMs <= dueMs) return;
    this.#cancel?.();
    this.#dueMs = dueMs;
    this.#cancel = this.#clock.after(Math.max(0, dueMs - this.#clock.monotonicMs()), () => this.#send());
  }

  #send(): void {
    this.#cancel = null;
    if (this.#stopped) return;
    this.#lastMs = this.#clock.monotonicMs();
    this.#publish(this.#read());
    this.#schedule(this.#lastMs + LONGEST_MS);
  }
}
