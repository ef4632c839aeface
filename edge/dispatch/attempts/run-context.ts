import type { Pressure } from "../../ports/coordinator.ts";
import type { InferenceRequest } from "../inference-request.ts";
import type { ClientAnswer } from "../relay/client-answer.ts";
import type { RetryBudgets } from "../retry-budget.ts";
import type { DispatcherDeps } from "../settings.ts";
import type { Hedges } from "./hedging.ts";
import type { MadeAttempt } from "./made-attempt.ts";
import type { ChainLink } from "./model-chain.ts";
import type { PoolWait } from "./pool-wait.ts";
import type { SentAttempt } from "./sent-attempt.ts";

/** What all attempts of one request have in common. */
export interface RunContext {
  readonly deps: DispatcherDeps;
  readonly retries: RetryBudgets;
  readonly hedges: Hedges;
  readonly request: InferenceRequest;
  readonly answer: ClientAnswer;
  readonly wait: PoolWait;
  /** Those that have ended, in order; the one that answered, if any did, is the last. */
  readonly made: MadeAttempt[];
  readonly running: Set<SentAttempt>;
  readonly state: {
    clientGone: boolean;
    expired: boolean;
    /** Attempts begun: the next one's number less one. */
    begun: number;
    /** Time waited for claims before the first attempt; null when it never waited. */
    queueMs: number | null;
    /** How things stood when a pool refused it, the last time one did. */
    refusedUnder: Pressure | null;
  };
  /**
   * Called before anything is sent. Opens the request's row the first time, as this model; answers with which model
   * the row was opened. Throws when the ledger takes no request.
   */
  readonly open: (link: ChainLink) => ChainLink;
}

/** Nobody waits for this request any more, or its time is up. */
export function isOver({ state }: RunContext): boolean {
  return state.clientGone || state.expired;
}
