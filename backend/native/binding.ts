/**
 * The complete face of the native core (`steerage_native.node`): everything that crosses N-API is named here and
 * nowhere else. Token ids and positions are int32, layers are zero-based block indices, ranges are half open.
 * Blocking calls are promises carried by named workers; every failure is an Error whose `code` is a NativeErrorCode.
 */
export const NATIVE_ERROR_CODES = [
  "invalid_argument",
  "disposed",
  "backend_load_failed",
  "model_file_missing",
  "model_file_invalid",
  "model_unsupported",
  "out_of_memory",
  "context_failed",
  "decode_failed",
  "row_ownership_violation",
  "hook_point_unsupported",
  "sae_shape_mismatch",
  "grammar_invalid",
  "template_failed",
  "non_finite_logits",
  "internal",
] as const;
export type NativeErrorCode = (typeof NATIVE_ERROR_CODES)[number];

/** What every call of the addon throws or rejects with. `code` is stable, `message` is for the log. */
export interface NativeError extends Error {
  code: NativeErrorCode;
}

export interface NativeAddon {
  /** Raised whenever this file changes shape; the loader refuses another one. */
  readonly interfaceVersion: number;
  /** Release tag of the llama.cpp headers the addon was compiled against, such as "b6000". */
  readonly llamaRelease: string;
  /** Once per process, before anything else: loads the compute backends of one library folder. */
  initialize(options: { backendsDirectory: string; onLog: (level: NativeLogLevel, text: string) => void }): void;
  loadModel(options: ModelOptions): Promise<NativeModel>;
  /** Makes or empties the file. `invalid_argument` with the reason when that cannot be done. */
  openAccountBoard(path: string): NativeAccountBoard;
  /** Copies the tensors into native memory. `sae_shape_mismatch` when the lengths do not fit (d, F). */
  loadSae(tensors: SaeTensors): NativeSae;
}
export type NativeLogLevel = "debug" | "info" | "warn" | "error";

export interface ModelOptions {
  path: string;
  /** Layers to offload; -1 means all that fit. */
  gpuLayers: number;
  useMmap: boolean;
  /** One proportion per device, or empty for llama.cpp's own choice. */
  tensorSplit: readonly number[];
}

export interface ModelInfo {
  readonly architecture: string;
  readonly layerCount: number;
  /** Width d of the residual stream. */
  readonly embeddingWidth: number;
  readonly vocabularySize: number;
  readonly trainingContextLength: number;
  /** Sliding attention window in tokens, 0 when there is none. */
  readonly slidingWindow: number;
  readonly recurrent: boolean;
  readonly hybrid: boolean;
  readonly parameterCount: number;
  readonly sizeBytes: number;
  readonly chatTemplate: string | null;
  readonly bosToken: number | null;
  readonly eosToken: number | null;
  readonly addsBos: boolean;
  /** GGUF key-value pairs as text, arrays left out. */
  readonly metadata: Readonly<Record<string, string>>;
}

export interface NativeModel {
  readonly info: ModelInfo;
  /** `addSpecial` adds BOS/EOS where the model wants them; `parseSpecial` reads control tokens from the text. */
  tokenize(text: string, addSpecial: boolean, parseSpecial: boolean): Int32Array;
  /** The token's true bytes, which need not be whole characters. Empty for control tokens unless rendered. */
  tokenBytes(token: number, renderSpecial: boolean): Uint8Array;
  isEndOfGeneration(token: number): boolean;
  isControl(token: number): boolean;
  /** Chat templates and answer parsing of libllama-common; null takes the model's own template. */
  openChat(templateOverride: string | null): NativeChat;
  /** `grammar_invalid` when the schema cannot be expressed. */
  grammarFromSchema(schemaJson: string): string;
  /** Fails with `grammar_invalid` instead of letting a job fail later. */
  checkGrammar(grammar: string, root: string): void;
  createContext(options: ContextOptions): Promise<NativeContext>;
  createEmbedder(options: EmbedderOptions): Promise<NativeEmbedder>;
  /** Refused with `invalid_argument` while a context of this model lives. */
  dispose(): Promise<void>;
}

export interface NativeChat {
  /**
   * `request` is JSON: {messages, tools?, tool_choice?, parallel_tool_calls?, json_schema?, add_generation_prompt,
   * chat_template_kwargs?, plain?}. `plain` renders without analysing the template: only `prompt` is told then.
   */
  apply(request: string): AppliedChat;
  /** OpenAI message as JSON from the text of an answer; `partial` while it still streams. */
  parse(text: string, partial: boolean, parser: string): string;
}
export interface AppliedChat {
  readonly prompt: string;
  /** Empty when nothing constrains the answer. */
  readonly grammar: string;
  readonly grammarLazy: boolean;
  /** JSON list of triggers, passed back in SamplerOptions.grammarTriggers as it came. */
  readonly grammarTriggers: string;
  readonly preservedTokens: readonly string[];
  readonly additionalStops: readonly string[];
  /** Opaque: hand it to `parse`. */
  readonly parser: string;
  /** The template marks reasoning apart from the answer. */
  readonly supportsThinking: boolean;
}

export interface ContextOptions {
  /** Sequences that may live at once, 1 to 256. */
  sequenceCount: number;
  /** KV cells of all sequences together. */
  cellCount: number;
  /**
   * Every sequence gets an equal share of the cells for itself, rounded up to 256: attention then reads no cells but its
   * own, and a copy from sequence to sequence moves a whole share. Left out or false, all take cells from one pool (a
   * unified cache) and a copy costs nothing. Not for recurrent and hybrid models.
   */
  kvStreams?: boolean;
  /** Tokens one step may carry; the micro-batch has the same size. */
  batchTokens: number;
  threads: number;
  flashAttention: boolean;
  kvType: "f32" | "f16" | "q8_0" | "q4_0";
  /** llama.cpp's own control vector on every row: d values for each layer from layer 1 on. None when left out. */
  controlVector?: Float32Array | null;
  /**
   * Whether prompts are let in by small chunks beside running answers, so that these keep their pace; true when left
   * out. Otherwise a prompt takes all the room of a step: more tokens a second over a burst, with long gaps in it.
   */
  boundsPrefill?: boolean;
  /** Where jobs that have an `accountRecord` tell how far they are. */
  accounts?: NativeAccountBoard | null;
  /**
   * Guesses the next tokens of running answers and verifies them in one step; the answers stay what they are without.
   * None when left out or null. `model_unsupported` where the last cells of a sequence cannot be taken back.
   */
  speculation?: SpeculationOptions | null;
  /** Called once per decode step with everything that happened in it, on the JavaScript thread. */
  onStep: (events: StepEvents) => void;
}

export interface SpeculationOptions {
  /** Drafted for an answer and step at most, 1 to 64. */
  tokens: number;
  /**
   * A small model that drafts, in cells of its own; left out or null: tokens are looked up in the sequence itself.
   * `model_unsupported` when its vocabulary is another one. In use as long as the context lives.
   */
  model?: NativeModel | null;
  /**
   * Whether drafts are left out where steps with them gave fewer tokens a second than steps without, as in a batch that
   * computes at its limit; true when left out. Otherwise they go along wherever a step has room.
   */
  whenFaster?: boolean;
}

/** The continuous-batching loop over one llama.cpp context, run by a thread of its own. */
export interface NativeContext {
  /** Why SAE work is refused on this model ("recurrent", "no l_out"...), or null when it is proven to work. */
  readonly hookRefusal: string | null;
  /** Takes a job; the first step that has room carries it. `invalid_argument` when the job contradicts itself. */
  submit(job: GenerationJob): void;
  /** The job leaves the batch before the next step; its `finished` event follows. Unknown ids are ignored. */
  cancel(jobId: number): void;
  /** Forgets all cells of an idle sequence. */
  clearSequence(sequenceId: number): void;
  /** Cancels what runs, joins the thread, frees the context. Idempotent. */
  dispose(): Promise<void>;
  counters(): ContextCounters;
}
/** Totals since the context was made. */
export interface ContextCounters {
  readonly steps: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** Micro-batches whose token ids, positions and row counts were compared with the batch that was built. */
  readonly ownershipChecks: number;
  readonly hookCalls: number;
  /** Drafted tokens that went through this model, and those of them that became part of an answer. */
  readonly draftedTokens: number;
  readonly acceptedTokens: number;
  /** Tokens that the draft model computed. */
  readonly draftModelTokens: number;
}

export interface GenerationJob {
  /** Chosen by the caller, positive, unique among running jobs. */
  jobId: number;
  /** The sequence must have no running job. */
  sequenceId: number;
  /**
   * Before anything else, take the cells [0, keepTokens) from this sequence (may be sequenceId itself). It may be
   * running: cells of its prompt do not change while it does.
   */
  copyFromSequenceId: number;
  /**
   * Cells [0, keepTokens) are reused, all later cells of the sequence are dropped. At most tokens.length - 1. When they
   * are not all there (a sliding-window model may have overwritten some) the whole prompt is computed instead;
   * computedPromptTokens tells.
   */
  keepTokens: number;
  /** The whole prompt; position i holds tokens[i]. */
  tokens: Int32Array;
  /** At least 1. */
  maxTokens: number;
  ignoreEndOfGeneration: boolean;
  /** Byte strings that end the answer when the text contains them. */
  stopStrings: readonly string[];
  sampler: SamplerOptions;
  /** Alternatives reported per token, 0 to 20; -1 reports no log-probabilities. */
  logprobs: number;
  /** Report prompt tokens too, from the first computed one on; needs `logprobs` of at least 0. */
  promptLogprobs: boolean;
  /** Control tokens whose text belongs to the answer. */
  renderedTokens: Int32Array;
  /** Every edit of one layer is computed from the same residual row and summed. */
  edits: readonly ResidualEdit[];
  sensing: readonly SensingPlan[];
  capture: readonly CapturePlan[];
  /** From `claim` of the context's board; -1 or left out for none. Given back when the job ends. */
  accountRecord?: number;
}
export interface SamplerOptions {
  /** 0 to 2^32 - 1. */
  seed: number;
  /** 0 is greedy. */
  temperature: number;
  /** 0 is off. */
  topK: number;
  /** 1 is off. */
  topP: number;
  /** 0 is off. */
  minP: number;
  /** 1 is off. */
  repeatPenalty: number;
  frequencyPenalty: number;
  presencePenalty: number;
  /** Tokens the penalties look back on; -1 is the whole context. */
  penaltyWindow: number;
  logitBias: readonly { token: number; bias: number }[];
  /** Only these may be sampled, and log-probabilities are over them alone; empty allows all. */
  allowedTokens: Int32Array;
  /** GBNF, or empty. */
  grammar: string;
  grammarLazy: boolean;
  /** As AppliedChat gave it, or empty. */
  grammarTriggers: string;
}
/**
 * Changes rows at positions [fromPosition, toPosition); toPosition -1 has no end. Either `vector` is added, or what
 * `terms` come to on the row; the other one is empty or null.
 */
export interface ResidualEdit {
  layer: number;
  fromPosition: number;
  toPosition: number;
  /** When given and not empty: only positions inside one of these, as pairs from, to. */
  ranges?: Int32Array | null;
  /** Rows that carry one of these tokens stay as they are. */
  excludedTokens?: Int32Array | null;
  /** Length d; the caller has already summed strength times decoder row. */
  vector: Float32Array;
  terms?: ActivationTerms | null;
  /** Rows where it does not hold stay as they are. */
  condition?: EditCondition | null;
}
/**
 * Sum over features of (offset + gain * activation) * direction, activations encoded from the row as it came; times
 * the scale that the SAE's normalisation took from the row, so that the sum is in the row's own units.
 */
export interface ActivationTerms {
  sae: NativeSae;
  features: Int32Array;
  offsets: Float32Array;
  gains: Float32Array;
  /** One direction of d values per feature. */
  directions: Float32Array;
}
export interface EditCondition {
  sae: NativeSae;
  feature: number;
  comparison: ">" | ">=" | "<" | "<=";
  value: number;
}
export interface SensingPlan {
  sae: NativeSae;
  layer: number;
  fromPosition: number;
  toPosition: number;
  readPoint: "pre_steering" | "post_steering";
  /** Only these columns are encoded; null encodes all and keeps the largest. */
  features: Int32Array | null;
  /** Largest active features kept per row when `features` is null. */
  topK: number;
  /** The job goes on without these rows, should it ever be uncertain whose they are. */
  optional?: boolean;
}
/** Residual rows handed out whole: for tests and for ranking features. */
export interface CapturePlan {
  layer: number;
  fromPosition: number;
  toPosition: number;
  readPoint: "pre_steering" | "post_steering";
}

/** int32 words per record of StepEvents.records: jobId, token, textStart, textEnd, position. */
export const STEP_RECORD_WORDS = 5;
export interface StepEvents {
  /** One record per sampled token, in batch order. Offsets point into `text`. */
  readonly records: Int32Array;
  /** Bytes of the sampled tokens, characters possibly cut; control tokens have none. */
  readonly text: Uint8Array;
  readonly prompts: readonly PromptProgress[];
  readonly logprobs: readonly TokenLogprobs[];
  readonly promptLogprobs: readonly PromptLogprobs[];
  readonly sensed: readonly SensedRows[];
  readonly captured: readonly CapturedRows[];
  /** Comes after the job's last record; nothing about the job follows. */
  readonly finished: readonly JobFinished[];
}
export interface PromptProgress {
  readonly jobId: number;
  /** Prompt tokens evaluated so far, without the reused ones. */
  readonly computedTokens: number;
}
export interface TokenLogprobs {
  readonly jobId: number;
  /** Natural log, of the distribution before temperature and truncation. */
  readonly logprob: number;
  readonly topTokens: Int32Array;
  readonly topLogprobs: Float32Array;
}
/** The chances of the prompt token at `position`, given those before it; position 0 has none. */
export interface PromptLogprobs extends TokenLogprobs {
  readonly position: number;
}
/** Row r has counts[r] (feature, value) pairs, laid end to end in `indices` and `values`. */
export interface SensedRows {
  readonly jobId: number;
  /** Place in GenerationJob.sensing. */
  readonly planIndex: number;
  readonly positions: Int32Array;
  readonly tokens: Int32Array;
  readonly counts: Int32Array;
  readonly indices: Int32Array;
  readonly values: Float32Array;
}
export interface CapturedRows {
  readonly jobId: number;
  readonly planIndex: number;
  readonly positions: Int32Array;
  /** positions.length rows of d values. */
  readonly rows: Float32Array;
}
export type FinishReason = "end_of_generation" | "stop_string" | "length" | "cancelled" | "failed";
export interface JobFinished {
  readonly jobId: number;
  readonly reason: FinishReason;
  /** Place in GenerationJob.stopStrings, or -1. */
  readonly stopIndex: number;
  /** Bytes of the whole answer up to where the stop string begins, or -1: the caller cuts its text there. */
  readonly textEndBytes: number;
  /** Prompt tokens really evaluated. */
  readonly computedPromptTokens: number;
  /** Tokens sampled, an end-of-generation token included. */
  readonly computedCompletionTokens: number;
  /**
   * Rows really changed, one entry per place in GenerationJob.edits: where a condition held and, of `terms`, where a
   * factor was not zero.
   */
  readonly editedRows: Int32Array;
  readonly errorCode: NativeErrorCode | null;
  readonly errorMessage: string | null;
}

/**
 * The encoder of one SAE, scale factors folded in: normalise the row, subtract the decoder bias where that applies,
 * p = W_enc column · row + bias, then the activation. Formulae: SAELens.
 */
export interface SaeTensors {
  embeddingWidth: number;
  featureCount: number;
  /** F rows of d: column j of W_enc lies at [j*d, (j+1)*d), so that one feature is one contiguous dot product. */
  encoderColumns: Float32Array;
  /** b_enc; b_mag of a gated SAE. */
  encoderBias: Float32Array;
  /** Subtracted from the row before encoding when `applyDecoderBiasToInput`. */
  decoderBias: Float32Array;
  applyDecoderBiasToInput: boolean;
  /**
   * Per row, before anything else; none when not given. `layer_norm` is (x - mean) / (std + 1e-5) with the unbiased
   * std, `constant_norm` brings the row's length to √d.
   */
  normalization?: "none" | "layer_norm" | "constant_norm";
  activation: "relu" | "jumprelu" | "gated" | "topk";
  /** JumpReLU: F values, else empty. Active where p > threshold and p > 0. */
  threshold: Float32Array;
  /** Gated only, F values: active where W_enc column · row + gateBias > 0. */
  gateBias?: Float32Array;
  /** Gated only, F values, e^r_mag: the magnitude is relu(magnitudeScale · (W_enc column · row) + encoderBias). */
  magnitudeScale?: Float32Array;
  /** Topk only: how many features stay active in a row. */
  activeCount?: number;
}
export interface NativeSae {
  readonly featureCount: number;
  readonly embeddingWidth: number;
  /** Encodes rows outside any batch: rows.length / d rows in, F activations a row out. */
  encode(rows: Float32Array): Float32Array;
  dispose(): void;
}

/**
 * What every request has computed up to the last finished step, in a file that outlives the process
 * (backend/ports/account-board.ts reads it).
 */
export interface NativeAccountBoard {
  /**
   * A record for a job of the request `label`; -1 when there is no room, which the file tells. `promptTokens` is 0 for a
   * job whose prompt is counted elsewhere.
   */
  claim(label: string, promptTokens: number, keepTokens: number): number;
  /** For work that is no job of a context. */
  setComputedPrompt(record: number, tokens: number): void;
  /** The work is over; what the record says stays until its place is needed. */
  release(record: number): void;
}

export interface EmbedderOptions {
  /** Longest input in tokens. */
  contextLength: number;
  threads: number;
  pooling: "mean" | "last" | "cls";
}
export interface NativeEmbedder {
  /** One vector of d values per input, not normalised; inputs keep their order. */
  embed(inputs: readonly Int32Array[]): Promise<Float32Array[]>;
  dispose(): Promise<void>;
}

/** The version of this file that the addon must report. */
export const NATIVE_INTERFACE_VERSION = 6;
