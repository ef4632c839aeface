import type { Clock } from "../../shared/time/clock.ts";
import type { EngineEnded, EngineEvent, EngineLoad, EngineReady } from "../ports/engine-events.ts";
import { Histogram } from "./histogram.ts";
import type { Slots } from "./slots.ts";

/** One request's running counts. `id` is null for callers that are no host: they get no ended event. */
export interface Work {
  readonly id: { readonly requestId: string; readonly attempt: number } | null;
  computedPrompt: number;
  cachedPrompt: number;
  computedCompletion: number;
  firstTokenMs: number | null;
  readonly startedMs: number;
}

export interface Totals {
  promptTokens: number;
  completionTokens: number;
  readonly finished: Map<string, number>;
  readonly ttftSeconds: Histogram;
  readonly perTokenSeconds: Histogram;
}

const CHANGE_GAP_MS = 100;
const HEARTBEAT_MS = 1_000;
/** Weight of the newest measurement of speed. */
const SPEED_SMOOTHING = 0.5;
const TTFT_BOUNDS = [0.001, 0.005, 0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60];
const PER_TOKEN_BOUNDS = [0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1];

/** What the scripted engine knows of itself: work in flight, totals, and the feed of events that a host follows. */
export class SimAccount {
  readonly totals: Totals = {
    promptTokens: 0,
    completionTokens: 0,
    finished: new Map(),
    ttftSeconds: new Histogram(TTFT_BOUNDS),
    perTokenSeconds: new Histogram(PER_TOKEN_BOUNDS),
  };
  readonly #clock: Clock;
  readonly #slots: Slots;
  readonly #ready: EngineReady;
  readonly #kvCells: number;
  readonly #work = new Set<Work>();
  readonly #listeners = new Set<(event: EngineEvent) => void>();
  #cancelTimer: () => void = () => undefined;
  #dueAtMs = Number.POSITIVE_INFINITY;
  #lastSentMs: number;
  #speed = { prompt: 0, completion: 0 };
  #told = { prompt: 0, completion: 0 };

  constructor(options: { clock: Clock; slots: Slots; ready: EngineReady; kvCells: number }) {
    this.#clock = options.clock;
    this.#slots = options.slots;
    this.#ready = options.ready;
    this.#kvCells = options.kvCells;
    this.#lastSentMs = options.clock.monotonicMs();
  }

  get kvUse(): number {
    return Math.min(1, this.#usedCells() / this.#kvCells);
  }

  begin(id: Work["id"]): Work {
    const work: Work = {
      id,
      computedPrompt: 0,
      cachedPrompt: 0,
      computedCompletion: 0,
      firstTokenMs: null,
      startedMs: this.#clock.monotonicMs(),
    };
    this.#work.add(work);
    this.changed();
    return work;
  }

  addPrompt(work: Work, computed: number, cached: number): void {
    work.computedPrompt += computed;
    work.cachedPrompt += cached;
    this.totals.promptTokens += computed + cached;
    this.changed();
  }

  addToken(work: Work): void {
    const nowMs = this.#clock.monotonicMs();
    if (work.firstTokenMs === null) {
      work.firstTokenMs = nowMs;
      this.totals.ttftSeconds.add((nowMs - work.startedMs) / 1_000);
    }
    work.computedCompletion++;
    this.totals.completionTokens++;
    this.changed();
  }

  /** The request is over; the second call for the same work does nothing. */
  end(work: Work, outcome: EngineEnded["outcome"], reason: string): void {
    if (!this.#work.delete(work)) return;
    this.totals.finished.set(reason, (this.totals.finished.get(reason) ?? 0) + 1);
    if (work.firstTokenMs !== null && work.computedCompletion > 1) {
      const spanMs = this.#clock.monotonicMs() - work.firstTokenMs;
      this.totals.perTokenSeconds.add(spanMs / 1_000 / (work.computedCompletion - 1));
    }
    if (work.id !== null) {
      this.#send({
        type: "ended",
        request_id: work.id.requestId,
        attempt: work.id.attempt,
        computed_prompt: work.computedPrompt,
        cached_prompt: work.cachedPrompt,
        computed_completion: work.computedCompletion,
        outcome,
      });
    }
    this.changed();
  }

  /** Sends everything from now on to `listener`, beginning with what this engine is. Returns how to stop. */
  follow(listener: (event: EngineEvent) => void): () => void {
    this.#listeners.add(listener);
    listener(this.#ready);
    listener(this.#load());
    this.#schedule(HEARTBEAT_MS);
    return () => {
      this.#listeners.delete(listener);
      if (this.#listeners.size === 0) this.#cancelTimer();
    };
  }

  changed(): void {
    if (this.#listeners.size === 0) return;
    this.#schedule(Math.max(0, this.#lastSentMs + CHANGE_GAP_MS - this.#clock.monotonicMs()));
  }

  #schedule(delayMs: number): void {
    const atMs = this.#clock.monotonicMs() + delayMs;
    if (atMs >= this.#dueAtMs) return;
    this.#cancelTimer();
    this.#dueAtMs = atMs;
    const cancel = this.#clock.after(delayMs, () => {
      this.#dueAtMs = Number.POSITIVE_INFINITY;
      this.#measureSpeed();
      this.#send(this.#load());
      if (this.#listeners.size > 0) this.#schedule(HEARTBEAT_MS);
    });
    this.#cancelTimer = () => {
      cancel();
      this.#dueAtMs = Number.POSITIVE_INFINITY;
    };
  }

  #send(event: EngineEvent): void {
    for (const listener of this.#listeners) listener(event);
  }

  #measureSpeed(): void {
    const nowMs = this.#clock.monotonicMs();
    const seconds = Math.max(0.001, (nowMs - this.#lastSentMs) / 1_000);
    const rate = (total: number, told: number, before: number): number =>
      before + SPEED_SMOOTHING * ((total - told) / seconds - before);
    this.#speed = {
      prompt: rate(this.totals.promptTokens, this.#told.prompt, this.#speed.prompt),
      completion: rate(this.totals.completionTokens, this.#told.completion, this.#speed.completion),
    };
    this.#told = { prompt: this.totals.promptTokens, completion: this.totals.completionTokens };
    this.#lastSentMs = nowMs;
  }

  #usedCells(): number {
    let used = 0;
    for (const work of this.#work) used += work.computedPrompt + work.cachedPrompt + work.computedCompletion;
    return used;
  }

  #load(): EngineLoad {
    return {
      type: "load",
      in_flight: this.#slots.taken,
      waiting: this.#slots.waiting,
      free_kv_cells: Math.max(0, this.#kvCells - this.#usedCells()),
      total_kv_cells: this.#kvCells,
      tokens_per_second: this.#speed.completion,
      prefill_tokens_per_second: this.#speed.prompt,
      running: [...this.#work].flatMap((work) =>
        work.id === null
          ? []
          : [
              {
                request_id: work.id.requestId,
                attempt: work.id.attempt,
                computed_prompt: work.computedPrompt,
                cached_prompt: work.cachedPrompt,
                computed_completion: work.computedCompletion,
              },
            ],
      ),
    };
  }
}
