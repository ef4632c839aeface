import type { OnSettled } from "../ports/ledger.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";
import type { InferenceRequest } from "./inference-request.ts";
import { DecisionLog, type RequestDecision } from "./account/decision-log.ts";
import { DispatchMemory } from "./dispatch-memory.ts";
import { RequestRun } from "./request-run.ts";
import { Reservations } from "./account/reservations.ts";
import type { DispatcherDeps } from "./settings.ts";

/** Carries requests through limits, admission, a machine and the ledger, and writes their answers. */
export class Dispatcher {
  #deps: DispatcherDeps;
  readonly #reservations: Reservations;
  readonly #memory: DispatchMemory;
  readonly #decisions: DecisionLog | null;

  /** `memory` outlives the dispatcher where that lives for one request only, and then keeps no `decisions`. */
  constructor(deps: DispatcherDeps, memory = new DispatchMemory(), decisions: DecisionLog | null = new DecisionLog()) {
    this.#deps = deps;
    this.#memory = memory;
    this.#decisions = decisions;
    const { limits, clock, logger, settings } = deps;
    this.#reservations = new Reservations({ limits, clock, logger, waitMs: settings.reportWaitMs });
  }

  /** For requests from now on: one that runs keeps the settings that it began with. */
  reconfigure(settings: DispatcherDeps["settings"]): void {
    this.#deps = { ...this.#deps, settings };
  }

  /** Never rejects: every failure is written as an answer. Resolves when the last byte was handed to the writer. */
  async run(request: InferenceRequest, writer: ResponseWriter): Promise<void> {
    await new RequestRun(
      this.#deps,
      {
        reservations: this.#reservations,
        retries: this.#memory.retries,
        hedges: this.#memory.hedges,
        decisions: this.#decisions,
      },
      request,
      writer,
    ).run();
  }

  /** The ledger's listener: reservations of attempts that were cut are settled by the machine's exact count. */
  get onSettled(): OnSettled {
    return this.#reservations.onSettled;
  }

  /** Why a request of this project went where it went; null when that is not known (any more). */
  decisionOf(requestId: string, project: string): RequestDecision | null {
    return this.#decisions?.find(requestId, project, this.#deps.clock.monotonicMs()) ?? null;
  }

  /** What was decided lately for all projects, the newest first. For operators. */
  latestDecisions(count: number): readonly RequestDecision[] {
    return this.#decisions?.latest(count, this.#deps.clock.monotonicMs()) ?? [];
  }

  /** Reservations that wait for a machine's report. */
  get openReservations(): number {
    return this.#reservations.waiting;
  }
}
