import type { EngineLoad } from "../../ports/engine-events.ts";
import type { RunningTask } from "../loop/engine-loop.ts";

export interface LoadState {
  readonly running: readonly RunningTask[];
  readonly waiting: number;
  readonly freeCells: number;
  readonly cellCount: number;
  readonly tokensPerSecond: number;
  readonly promptTokensPerSecond: number;
}

/** The `load` event of one moment. Requests without an id count as load but cannot be listed. */
export function engineLoad(state: LoadState): EngineLoad {
  return {
    type: "load",
    in_flight: state.running.length,
    waiting: state.waiting,
    free_kv_cells: state.freeCells,
    total_kv_cells: state.cellCount,
    tokens_per_second: rounded(state.tokensPerSecond),
    prefill_tokens_per_second: rounded(state.promptTokensPerSecond),
    running: state.running.flatMap(({ label, ...counts }) =>
      label === null
        ? []
        : [
            {
              request_id: label.requestId,
              attempt: label.attempt,
              computed_prompt: counts.computedPromptTokens,
              cached_prompt: counts.cachedPromptTokens,
              computed_completion: counts.computedCompletionTokens,
            },
          ],
    ),
  };
}

const rounded = (value: number): number => Math.round(value * 10) / 10;
