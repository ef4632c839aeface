import type { Pressure } from "../../ports/coordinator.ts";
import { isCallersFault } from "../relay/refusal.ts";
import type { Ending, MadeAttempt } from "./made-attempt.ts";
import { ModelAttempts, type ModelEnding } from "./model-attempts.ts";
import type { ChainLink, ModelChain } from "./model-chain.ts";
import { PoolWait } from "./pool-wait.ts";
import type { RunContext } from "./run-context.ts";
import type { SentAttempt } from "./sent-attempt.ts";

export type RequestAttemptsOptions = Pick<RunContext, "deps" | "retries" | "hedges" | "request" | "answer" | "open">;

/** The attempts of one request, with one model after another, until one answers or none may follow. */
export class RequestAttempts {
  readonly #context: RunContext;

  constructor(options: RequestAttemptsOptions) {
    const { deps, retries, hedges, request, answer, open } = options;
    const tellsProgress = request.progress && request.envelope.stream === true;
    this.#context = {
      deps,
      retries,
      hedges,
      request,
      answer,
      open,
      wait: new PoolWait({ deps, answer, tellsProgress }),
      made: [],
      running: new Set<SentAttempt>(),
      state: { clientGone: false, expired: false, begun: 0, queueMs: null, refusedUnder: null },
    };
  }

  /** Those that have ended, in order; the one that answered, if any did, is the last. */
  get made(): readonly MadeAttempt[] {
    return this.#context.made;
  }

  /** How long it waited for its first claim; null when it never waited. */
  get queueMs(): number | null {
    return this.#context.state.queueMs;
  }

  /** How things stood when a pool refused it; null when none did. */
  get refusedUnder(): Pressure | null {
    return this.#context.state.refusedUnder;
  }

  clientLeft(): void {
    this.#context.state.clientGone = true;
    for (const sent of this.#context.running) sent.cancel();
    this.#context.wait.leave();
  }

  timeIsUp(): void {
    this.#context.state.expired = true;
    for (const sent of this.#context.running) sent.expire();
    this.#context.wait.leave();
  }

  /** With the model that was asked for, or those that may answer in its stead. */
  async untilAnswered(chain: ModelChain): Promise<Ending> {
    let told: ModelEnding | null = null;
    for (const [place, link] of chain.entries()) {
      const later = chain.slice(place + 1);
      // With nothing ready and somebody else to ask, nobody waits for a machine to appear.
      const isSkipped = link.model.readyReplicas === 0 && later.some(({ model }) => model.readyReplicas > 0);
      if (!isSkipped) {
        const ending: ModelEnding = await new ModelAttempts(this.#context, link).untilAnswered();
        if (!ending.elsewhere) return ending;
        if (told === null || says(ending) > says(told) || says(ending) === MACHINE_SPOKE) told = ending;
      }
      this.#logNext(link, later[0]);
    }
    if (told === null) throw new Error("of the models that could be asked, none was");
    return told;
  }

  #logNext({ model }: ChainLink, next: ChainLink | undefined): void {
    if (next === undefined) return;
    this.#context.deps.logger.info("another model is asked in its stead", {
      request_id: this.#context.request.requestId,
      model: model.id,
      fallback: next.model.id,
    });
  }
}

const MACHINE_SPOKE = 2;

/**
 * Which of several reasons is told: that of the last machine that was tried, else the first queue's, which may let the
 * request in another time, else the first model's for which it is too long.
 */
function says({ outcome, refusal }: ModelEnding): number {
  if (outcome === "shed") return 1;
  return refusal !== null && isCallersFault(refusal) ? 0 : MACHINE_SPOKE;
}
