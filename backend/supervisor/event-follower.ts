import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { EngineEvent } from "../ports/engine-events.ts";
import { followEvents } from "./event-stream.ts";

/** An engine tells its load once a second; one that is silent this long does not work any more. */
const SILENCE_LIMIT_MS = 60_000;
const CONNECT_AGAIN_MS = 50;
/** After an engine's end, for the events that still stand in its socket. */
const LAST_EVENTS_MS = 500;

export interface EventFollowerOptions {
  readonly socketPath: string;
  readonly clock: Clock;
  readonly logger: Logger;
  readonly onEvent: (event: EngineEvent) => void;
  /** The engine was heard before and has been silent for too long. */
  readonly onSilence: () => void;
}

const nothing = (): void => undefined;

/** Keeps one engine process's events stream open, from before it listens until after it has ended. */
export class EventFollower {
  readonly #options: EventFollowerOptions;
  #open = false;
  #finishing = false;
  #stopped = false;
  #cancelRetry = nothing;
  #cancelSilence = nothing;
  #closeStream = nothing;
  #onClosed = nothing;

  constructor(options: EventFollowerOptions) {
    this.#options = options;
    this.#connect();
  }

  /** The process has ended: reads what still stands in the socket, then lets go. */
  async finish(): Promise<void> {
    this.#finishing = true;
    this.#cancelRetry();
    this.#cancelSilence();
    if (this.#open) {
      await new Promise<void>((resolve) => {
        const cancel = this.#options.clock.after(LAST_EVENTS_MS, resolve);
        this.#onClosed = () => {
          cancel();
          resolve();
        };
      });
    }
    this.#stopped = true;
    this.#closeStream();
  }

  #connect(): void {
    this.#closeStream = followEvents(this.#options.socketPath, {
      onEvent: (event) => this.#take(event),
      onFault: (reason) => this.#options.logger.warn("an engine event could not be read", { reason }),
      onClose: () => {
        this.#open = false;
        this.#onClosed();
        if (!this.#finishing) this.#cancelRetry = this.#options.clock.after(CONNECT_AGAIN_MS, () => this.#connect());
      },
    });
  }

  #take(event: EngineEvent): void {
    if (this.#stopped) return;
    this.#open = true;
    if (!this.#finishing) {
      this.#cancelSilence();
      this.#cancelSilence = this.#options.clock.after(SILENCE_LIMIT_MS, this.#options.onSilence);
    }
    this.#options.onEvent(event);
  }
}
