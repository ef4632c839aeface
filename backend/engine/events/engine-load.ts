import type { SpeculationCounts } from "../../../shared/protocol/report.ts";
import type { EngineLoad } from "../../ports/engine-events.ts";
import type { RunningTask } from "../loop/engine-loop.ts";

export interface LoadState {
  readonly running: readonly RunningTask[];
  readonly waiting: number;
  readonly freeCells: number;
  readonly cellCount: number;
  readonly tokensPerSecond: number;
  readonly promptTokensPerSecond: number;
  /** Null where nothing is guessed. */
  readonly speculation: SpeculationCounts | null;
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
    ...(state.speculation === null ? {} : { speculation: state.speculation }),
    running: [...byRequest(state.running)],
  };
}

type RunningRequest = EngineLoad["running"][number];

/** Choices of one request are listed as one. */
function byRequest(running: readonly RunningTask[]): Iterable<RunningRequest> {
  const requests = new Map<string, RunningRequest>();
  for (const { label, ...counts } of running) {
    if (label === null) continue;
    const key = `${label.requestId}.${label.attempt}`;
    const sum = requests.get(key);
    requests.set(key, {
      request_id: label.requestId,
      attempt: label.attempt,
      computed_prompt: (sum?.computed_prompt ?? 0) + counts.computedPromptTokens,
      cached_prompt: (sum?.cached_prompt ?? 0) + counts.cachedPromptTokens,
      computed_completion: (sum?.computed_completion ?? 0) + counts.computedCompletionTokens,
    });
  }
  return requests.values();
}

const rounded = (value: number): number => Math.round(value * 10) / 10;
