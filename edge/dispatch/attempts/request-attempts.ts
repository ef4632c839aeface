import { ApiError } from "../../../shared/errors/api-error.ts";
import type { Pressure } from "../../ports/coordinator.ts";
import { refusalOf } from "../relay/refusal.ts";
import type { Ending, MadeAttempt } from "./made-attempt.ts";
import { ModelAttempts, type ModelEnding } from "./model-attempts.ts";
import type { ChainLink, ModelChain } from "./model-chain.ts";
import { PoolWait } from "./pool-wait.ts";
import type { RunContext } from "./run-context.ts";
import type { SentAttempt } from "./sent-attempt.ts";

/** What is told where a model has no machine now, and what may answer in its stead could not either. */
const NO_MACHINE_RETRY_AFTER_SECONDS = 10;

export type RequestAttemptsOptions = Pick<RunContext, "deps" | "retries" | "hedges" | "request" | "answer" | "open">;

/** The attempts of one request, with one model after another, until one answers or none may follow. */
export class RequestAttempts {
  readonly #context: RunContext;

  constructor(options: RequestAttemptsOptions) {
    const { deps, answer, request } = options;
    const tellsProgress = request.progress && request.envelope.stream === true;
    this.#context = {
      ...options,
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
      const ending = await this.#with(link, later);
      // Of models that never got as far as a machine, the first one's reason is the one to tell.
      const saysMore: boolean = told === null || ending.outcome !== "shed";
      if (saysMore) told = ending;
      if (!ending.elsewhere) return ending;
      const [next] = later;
      if (next !== undefined)
        this.#context.deps.logger.info("another model is asked in its stead", {
          request_id: this.#context.request.requestId,
          model: link.model.id,
          fallback: next.model.id,
        });
    }
    if (told === null) throw new Error("a chain has at least one model");
    return told;
  }

  #with(link: ChainLink, later: readonly ChainLink[]): Promise<ModelEnding> | ModelEnding {
    // With nothing ready and somebody else to ask, nobody waits for a machine to appear.
    if (link.model.readyReplicas === 0 && later.some(({ model }) => model.readyReplicas > 0)) {
      const retryAfterSeconds = NO_MACHINE_RETRY_AFTER_SECONDS;
      const refusal = refusalOf(new ApiError("no_replica_available", { retryAfterSeconds }));
      return { outcome: "shed", refusal, elsewhere: true };
    }
    return new ModelAttempts(this.#context, link).untilAnswered();
  }
}
