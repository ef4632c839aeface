import type { Claim, GrantReason } from "../../ports/coordinator.ts";
import { HeldClaim } from "../held-claim.ts";
import type { AnswerSink } from "../relay/answer-sink.ts";
import type { RelayResult } from "../relay/relay-result.ts";
import { paceOf, usedBy, type MadeAttempt } from "./made-attempt.ts";
import type { ChainLink } from "./model-chain.ts";
import { isOver, type RunContext } from "./run-context.ts";
import { SentAttempt } from "./sent-attempt.ts";

export interface ClaimedAttemptOptions {
  readonly context: RunContext;
  readonly link: ChainLink;
  readonly claim: Claim;
  readonly why: GrantReason | null;
  readonly attempt: number;
  readonly answer: AnswerSink;
}

/** One attempt with its claim, which is released once however the attempt ends. */
export class ClaimedAttempt {
  readonly #options: ClaimedAttemptOptions;
  readonly #sent: SentAttempt;
  readonly #held: HeldClaim;
  #lostRace = false;

  constructor(options: ClaimedAttemptOptions) {
    const { context, link, claim, attempt, answer } = options;
    this.#options = options;
    this.#held = new HeldClaim(context.deps, link.model.pool, claim);
    this.#sent = new SentAttempt({ context, link, answer, target: claim.target, attempt });
  }

  /** Null: it was given up before anything was sent. Rejects when it cannot be sent. */
  async run(): Promise<MadeAttempt | null> {
    const { context, link, claim, why, attempt } = this.#options;
    const { clock } = context.deps;
    const sinceMs = clock.monotonicMs();
    let result: RelayResult | null = null;
    try {
      if (isOver(context)) return null;
      context.running.add(this.#sent);
      result = await this.#sent.run();
    } finally {
      context.running.delete(this.#sent);
      this.#release(result, sinceMs);
    }
    if (result.firstTokenAtMs !== null && !this.#lostRace)
      context.hedges.firstToken(link.model.id, result.firstTokenAtMs - sinceMs);
    return { attempt, link, target: claim.target, result, why, lostRace: this.#lostRace };
  }

  /** Another machine was faster to begin. The connection is closed before this returns. */
  lose(): void {
    this.#lostRace = true;
    this.#sent.cancel();
  }

  /** A race is charged once: what the loser did is nobody's, between projects too. */
  #release(result: RelayResult | null, sinceMs: number): void {
    const used = this.#lostRace ? NOTHING : usedBy(result, this.#options.link.bounds.inputTokensEstimate);
    const pace = this.#lostRace ? null : paceOf(result, sinceMs);
    this.#held.release(result?.claimResult ?? "cancelled", result?.busyForMs ?? null, used, pace);
  }
}

const NOTHING = { promptTokens: 0, cachedTokens: 0, completionTokens: 0 };
