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

  /** Resolves with true when nothing runs, or with false after `limitMs`. */
  async idleWithin(limitMs: number): Promise<boolean> {
    if (this.#running === 0) return true;
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), limitMs);
      this.#whenIdle.push(() => {
        clearTimeout(timer);
        resolve(true);
      });
    });
  }
}
