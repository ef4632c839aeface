import type { EngineEnded, EngineEvent, EngineReady } from "../../ports/engine-events.ts";

/** Takes one event as a line with its end. A droppable one is outdated by the next of its kind. */
export type EventSink = (line: string, droppable: boolean) => void;

/** Accounts kept for a host that is not connected at the moment. */
const MAX_UNHEARD = 10_000;

/** Tells connected hosts about this engine. An account that nobody heard waits for the next connection. */
export class EventHub {
  #ready: EngineReady;
  readonly #sinks = new Set<EventSink>();
  #unheard: EngineEnded[] = [];

  constructor(ready: EngineReady) {
    this.#ready = ready;
  }

  /** `ready` is the first line, then accounts nobody heard, then events as they come. Returns how to leave. */
  connect(sink: EventSink): () => void {
    sink(lineOf(this.#ready), false);
    for (const ended of this.#unheard) sink(lineOf(ended), false);
    this.#unheard = [];
    this.#sinks.add(sink);
    return () => this.#sinks.delete(sink);
  }

  /** What the engine is has changed: told to everybody who listens, and first to everybody who comes. */
  announce(ready: EngineReady): void {
    this.#ready = ready;
    this.publish(ready);
  }

  publish(event: EngineEvent): void {
    if (event.type === "ended" && this.#sinks.size === 0) {
      this.#unheard.push(event);
      if (this.#unheard.length > MAX_UNHEARD) this.#unheard.shift();
      return;
    }
    const line = lineOf(event);
    for (const sink of this.#sinks) sink(line, event.type === "load");
  }
}

const lineOf = (event: EngineEvent): string => `${JSON.stringify(event)}\n`;
