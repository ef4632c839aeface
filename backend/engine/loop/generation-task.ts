import type {
  FinishReason,
  GenerationJob,
  NativeErrorCode,
  PromptLogprobs,
  SensedRows,
  TokenLogprobs,
} from "../../native/binding.ts";
import type { CellLabels } from "../slots/cell-labels.ts";

/** Names a request towards host and edge. */
export interface RequestLabel {
  readonly requestId: string;
  readonly attempt: number;
}

/** A request for the loop: everything but where and when it runs. */
export interface GenerationTask {
  /** Null for requests that named no id. */
  readonly label: RequestLabel | null;
  readonly labels: CellLabels;
  /** Whether its prompt is counted: of several choices on one prompt, the first one's is. */
  readonly countsPrompt: boolean;
  /** First position whose row must really be computed. */
  readonly reuseLimit: number;
  readonly maxTokens: number;
  readonly job: Omit<
    GenerationJob,
    "jobId" | "sequenceId" | "copyFromSequenceId" | "keepTokens" | "tokens" | "maxTokens"
  >;
}

export interface SampledToken {
  readonly token: number;
  /** True bytes, possibly part of a character; empty for control tokens. */
  readonly bytes: Uint8Array;
  readonly logprobs: TokenLogprobs | null;
}

/** What is told about a task, in this order: started, then tokens and rows as they come, then finished, once. */
export interface TaskSink {
  started(cachedTokens: number): void;
  token(sampled: SampledToken): void;
  /** Of prompt tokens, before the first sampled one. */
  promptChances(chances: readonly PromptLogprobs[]): void;
  sensed(rows: SensedRows): void;
  finished(account: TaskAccount): void;
}

/** The exact account of one task. All zeros for one that was cancelled while it waited. */
export interface TaskAccount {
  readonly reason: FinishReason;
  /** Bytes of the answer up to where the stop string begins, or -1. */
  readonly textEndBytes: number;
  readonly cachedPromptTokens: number;
  readonly computedPromptTokens: number;
  readonly computedCompletionTokens: number;
  readonly editedRows: ArrayLike<number>;
  /** For the log. */
  readonly failure: { readonly code: NativeErrorCode; readonly message: string } | null;
}

export const NOTHING_COMPUTED: TaskAccount = {
  reason: "cancelled",
  textEndBytes: -1,
  cachedPromptTokens: 0,
  computedPromptTokens: 0,
  computedCompletionTokens: 0,
  editedRows: [],
  failure: null,
};
