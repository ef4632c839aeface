import type { Logger } from "../../../shared/logging/logger.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import type { NativeContext, NativeModel } from "../../native/binding.ts";
import type { EmbeddingQueue } from "../embedding/embedding-queue.ts";
import type { EmbeddingRuns } from "../embedding/embedding-runs.ts";
import type { LoadReporter } from "../events/load-reporter.ts";
import type { EngineServer } from "../http/engine-server.ts";
import type { FeatureRanker } from "../saes/feature-ranker.ts";
import type { EngineLoop } from "../loop/engine-loop.ts";
import type { SaeRegistry } from "../sae-registry.ts";

export interface EngineParts {
  readonly server: EngineServer;
  readonly loop: EngineLoop;
  readonly runs: EmbeddingRuns;
  readonly queue: EmbeddingQueue;
  readonly ranker: Pick<FeatureRanker, "close">;
  readonly context: NativeContext;
  readonly saes: SaeRegistry;
  readonly native: NativeModel;
  readonly draft: NativeModel | null;
  readonly reporter: LoadReporter;
  readonly clock: Clock;
  readonly logger: Logger;
}

/** How often a drain looks whether embeddings and rankings are done. */
const DRAIN_POLL_MS = 20;

/** A loaded engine: listens, drains and gives everything back in order. */
export class RunningEngine {
  readonly #parts: EngineParts;
  #stopping: Promise<void> | null = null;

  constructor(parts: EngineParts) {
    this.#parts = parts;
  }

  listen(socketPath: string): Promise<void> {
    const { server } = this.#parts.server;
    return new Promise((resolve, reject) => {
      server.once("error", reject);
      server.listen(socketPath, () => {
        server.off("error", reject);
        resolve();
      });
    });
  }

  /** How long the native core has owed a step, milliseconds. */
  get stalledMs(): number {
    return this.#parts.loop.stalledMs;
  }

  /** Refuses new requests, lets running ones finish for at most `drainMs`, ends the rest and frees native memory. */
  stop(drainMs: number): Promise<void> {
    this.#stopping ??= this.#stop(drainMs);
    return this.#stopping;
  }

  async #stop(drainMs: number): Promise<void> {
    const { server, loop, context, queue, saes, native, draft, reporter, clock, logger } = this.#parts;
    server.drain();
    const cancelLate = clock.after(drainMs, () => {
      logger.warn("drain took too long; what runs is ended", { running: loop.running().length });
      loop.cancelAll();
    });
    await loop.whenIdle();
    cancelLate();
    // What waits for its turn is refused, what is ranked ends with its text.
    await this.#parts.ranker.close();
    while (this.#parts.runs.running().length > 0) {
      await new Promise<void>((resolve) => clock.after(DRAIN_POLL_MS, resolve));
    }
    await server.close();
    reporter.stop();
    await context.dispose();
    await queue.dispose();
    saes.close();
    await native.dispose();
    await draft?.dispose();
  }
}
