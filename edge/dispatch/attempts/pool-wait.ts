import type { AdmitDecision, AdmitRequest } from "../../ports/coordinator.ts";
import { QueueProgress } from "../queue-progress.ts";
import type { ClientAnswer } from "../relay/client-answer.ts";
import type { DispatcherDeps } from "../settings.ts";

export interface PoolWaitOptions {
  readonly deps: Pick<DispatcherDeps, "clock" | "coordinator" | "logger" | "settings">;
  readonly answer: ClientAnswer;
  /** The client wants to be told its place while it waits. */
  readonly tellsProgress: boolean;
}

/** Waits of one request for a claim, one at a time, which can be left at any moment. */
export class PoolWait {
  readonly #options: PoolWaitOptions;
  #waiting: AdmitRequest | null = null;

  constructor(options: PoolWaitOptions) {
    this.#options = options;
  }

  async admit(request: AdmitRequest): Promise<AdmitDecision> {
    const { coordinator } = this.#options.deps;
    const progress = this.#progress(request);
    this.#waiting = request;
    try {
      // A waiting admit dies with the object that held it; its place is kept by the time of first arrival.
      return await coordinator.admit(request).catch(() => coordinator.admit(request));
    } finally {
      this.#waiting = null;
      progress?.stop();
    }
  }

  /** Gives the place up: the wait, if there is one, ends as cancelled. */
  leave(): void {
    if (this.#waiting === null) return;
    const { coordinator, logger } = this.#options.deps;
    const { pool, requestId } = this.#waiting;
    coordinator
      .cancel(pool, requestId)
      .catch((thrown: unknown) =>
        logger.error("a waiting request could not be cancelled", { request_id: requestId }, thrown),
      );
  }

  #progress({ pool, requestId }: AdmitRequest): QueueProgress | null {
    if (!this.#options.tellsProgress) return null;
    const { coordinator, clock, settings } = this.#options.deps;
    return new QueueProgress({
      clock,
      everyMs: settings.progressEveryMs,
      prospect: async () => (await coordinator.prospect?.(pool, requestId)) ?? null,
      tell: (comment) => this.#options.answer.comment(comment),
    });
  }
}
