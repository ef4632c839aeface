import type { RunningTask } from "../loop/engine-loop.ts";
import type { RequestLabel } from "../loop/generation-task.ts";

export interface EmbeddingRun {
  readonly computedTokens: number;
  progress(computedTokens: number): void;
  end(): void;
}

/** The embedding requests that are being answered, for the load report. */
export class EmbeddingRuns {
  readonly #runs = new Map<object, { label: RequestLabel | null; computedTokens: number }>();
  readonly #onChange: () => void;
  readonly #onTokens: (count: number) => void;

  constructor(onChange: () => void, onTokens: (count: number) => void) {
    this.#onChange = onChange;
    this.#onTokens = onTokens;
  }

  begin(label: RequestLabel | null): EmbeddingRun {
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
      },
      end: () => {
        this.#runs.delete(run);
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
