/** An activation above the threshold of a watch list. */
export interface ThresholdEvent {
  readonly at_ms: number;
  /** Null for a request that named no id. */
  readonly request_id: string | null;
  readonly attempt: number | null;
  readonly position: number;
  readonly part: "prompt" | "completion";
  readonly feature: number;
  readonly value: number;
  /** Left out unless the host's configuration lets callers' text in. */
  readonly context?: EventContext;
}
export interface EventContext {
  readonly before: string;
  readonly token: string;
  readonly after: string;
}
/** Sequences ascend by one from 1 for as long as the watch list lives in this engine. */
export type KeptEvent = ThresholdEvent & { readonly sequence: number };

export interface EventListener {
  event(event: KeptEvent): void;
  /** Nothing follows. */
  ended(): void;
}

/** The newest events of one watch list, and whoever follows them. */
export class EventHistory {
  readonly #capacity: number;
  /** A ring: the event of sequence n stands at (n - 1) modulo the capacity. */
  readonly #events: KeptEvent[] = [];
  readonly #listeners = new Set<EventListener>();
  #sequence = 0;
  #closed = false;

  constructor(capacity: number) {
    this.#capacity = capacity;
  }

  get lastSequence(): number {
    return this.#sequence;
  }
  get listenerCount(): number {
    return this.#listeners.size;
  }

  add(event: ThresholdEvent): void {
    if (this.#closed) return;
    const kept = { sequence: this.#sequence + 1, ...event };
    this.#events[this.#sequence % this.#capacity] = kept;
    this.#sequence += 1;
    for (const listener of this.#listeners) listener.event(kept);
  }

  /** The first `limit` kept events after a sequence, oldest first. */
  after(sequence: number, limit = Infinity): readonly KeptEvent[] {
    const forgotten = Math.max(0, this.#sequence - this.#capacity);
    const first = Math.max(sequence, forgotten);
    const count = Math.max(0, Math.min(limit, this.#sequence - first));
    return Array.from({ length: count }, (_, at) => this.#events[(first + at) % this.#capacity]).filter(
      (event) => event !== undefined,
    );
  }

  /** Those after a sequence at once, then all that come. Returns how to leave. */
  follow(sequence: number, listener: EventListener): () => void {
    for (const event of this.after(sequence)) listener.event(event);
    if (this.#closed) listener.ended();
    else this.#listeners.add(listener);
    return () => this.#listeners.delete(listener);
  }

  close(): void {
    this.#closed = true;
    for (const listener of this.#listeners) listener.ended();
    this.#listeners.clear();
  }
}
