import type { EmbeddingRun, EmbeddingRuns } from "../embedding/embedding-runs.ts";
import type { RequestAccount } from "../events/request-account.ts";

/** What one ranking computes, for the load report, the account board and its single `ended` event. */
export class RankingAccount {
  readonly #account: RequestAccount;
  readonly #runs: Pick<EmbeddingRuns, "begin">;
  #run: EmbeddingRun | null = null;

  constructor(account: RequestAccount, runs: Pick<EmbeddingRuns, "begin">) {
    this.#account = account;
    this.#runs = runs;
  }

  begin(promptTokens: number): void {
    this.#run = this.#runs.begin(this.#account.label, promptTokens);
  }

  progress(computedTokens: number): void {
    this.#run?.progress(computedTokens);
  }

  /** Once, before the answer is written: it is told what was computed until then. */
  end(outcome: "completed" | "cancelled" | "failed"): void {
    this.#account.end(outcome, { computed_prompt: this.#run?.computedTokens ?? 0 });
    this.#run?.end();
  }
}
