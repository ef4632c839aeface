import type { NativeAccountBoard } from "../../native/binding.ts";
import { accountLabel } from "../../ports/account-board.ts";
import type { RunningTask } from "../loop/engine-loop.ts";
import type { RequestLabel } from "../loop/generation-task.ts";

export interface EmbeddingRun {
  readonly computedTokens: number;
  progress(computedTokens: number): void;
  end(): void;
}

/** What is computed beside the loop, embeddings and rankings, for the load report and the account board. */
export class EmbeddingRuns {
  readonly #runs = new Map<object, { label: RequestLabel | null; computedTokens: number }>();
  readonly #onChange: () => void;
  readonly #onTokens: (count: number) => void;

  readonly #accounts: NativeAccountBoard | null;

  constructor(onChange: () => void, onTokens: (count: number) => void, accounts: NativeAccountBoard | null) {
    this.#accounts = accounts;
    this.#onChange = onChange;
    this.#onTokens = onTokens;
  }

  begin(label: RequestLabel | null, promptTokens: number): EmbeddingRun {
    const accounts = this.#accounts;
    const record =
      accounts === null || label === null
        ? -1
        : accounts.claim(accountLabel(label.requestId, label.attempt), promptTokens, 0);
    const run = { label, computedTokens: 0 };
    this.#runs.set(run, run);
    this.#onChange();
    return {
      get computedTokens() {
        return run.computedTokens;
      },
      progress: (computedTokens) => {
        this.#onTokens(computedTokens - run.computedTokens);
        run.computedTokens = computedTokens;
        if (record >= 0) accounts?.setComputedPrompt(record, computedTokens);
      },
      end: () => {
        this.#runs.delete(run);
        if (record >= 0) accounts?.release(record);
        this.#onChange();
      },
    };
  }

  running(): RunningTask[] {
    return [...this.#runs.values()].map(({ label, computedTokens }) => ({
      label,
      cachedPromptTokens: 0,
      computedPromptTokens: computedTokens,
      computedCompletionTokens: 0,
    }));
  }
}
