import type { Dispatch } from "../deps.ts";
import type { InferenceRequest } from "../dispatch/inference-request.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";

/** Counts what runs, so that a process on its way out knows when it is done. */
export class RunningRequests implements Dispatch {
  readonly #inner: Dispatch;
  #running = 0;
  #whenIdle: (() => void)[] = [];

  constructor(inner: Dispatch) {
    this.#inner = inner;
  }

  get count(): number {
    return this.#running;
  }

  async run(request: InferenceRequest, writer: ResponseWriter): Promise<void> {
    this.#running++;
    try {
      await this.#inner.run(request, writer);
    } finally {
      this.#running--;
      if (this.#running === 0) {
        for (const resolve of this.#whenIdle) resolve();
        this.#whenIdle = [];
      }
    }
  }

  /** Resolves with true when nothing runs, or with false after `limitMs` or when `signal` says so. */
  async idleWithin(limitMs: number, signal?: AbortSignal): Promise<boolean> {
    if (this.#running === 0) return true;
    if (signal?.aborted === true) return false;
    return new Promise((resolve) => {
      const giveUp = (): void => resolve(false);
      const timer = setTimeout(giveUp, limitMs);
      signal?.addEventListener("abort", giveUp, { once: true });
      this.#whenIdle.push(() => {
        clearTimeout(timer);
        resolve(true);
      });
    });
  }
}
