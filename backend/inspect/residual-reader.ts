import type {
  CapturePlan,
  ContextOptions,
  GenerationJob,
  JobFinished,
  NativeContext,
  NativeModel,
  SamplerOptions,
  StepEvents,
} from "../native/binding.ts";

/** One step of many tokens is as fast as any. */
const BATCH_TOKENS = 512;
const CELL_STEP = 256;

const GREEDY: SamplerOptions = {
  seed: 0,
  temperature: 0,
  topK: 0,
  topP: 1,
  minP: 0,
  repeatPenalty: 1,
  frequencyPenalty: 0,
  presencePenalty: 0,
  penaltyWindow: 0,
  logitBias: [],
  allowedTokens: new Int32Array(0),
  grammar: "",
  grammarLazy: false,
  grammarTriggers: "",
};

interface OpenRead {
  readonly rows: (Float32Array | undefined)[];
  readonly end: (finished: JobFinished) => void;
}

export type ReaderOptions = Pick<ContextOptions, "threads" | "flashAttention" | "kvType"> & {
  /** Longest sequence that will be read, tokens. */
  readonly contextTokens: number;
};

/** Reads residual rows of token sequences out of a model, one sequence at a time, in a context of its own. */
export class ResidualReader {
  readonly #context: NativeContext;
  readonly #model: NativeModel;
  readonly #state: { open: OpenRead | null };
  #nextJobId = 1;

  private constructor(model: NativeModel, context: NativeContext, state: { open: OpenRead | null }) {
    this.#model = model;
    this.#context = context;
    this.#state = state;
  }

  static async open(model: NativeModel, { contextTokens, ...options }: ReaderOptions): Promise<ResidualReader> {
    const state: { open: OpenRead | null } = { open: null };
    const cellCount = Math.ceil((contextTokens + 1) / CELL_STEP) * CELL_STEP;
    const context = await model.createContext({
      ...options,
      sequenceCount: 1,
      cellCount,
      batchTokens: Math.min(BATCH_TOKENS, cellCount),
      onStep: (events) => {
        if (state.open !== null) collect(events, state.open, model.info.embeddingWidth);
      },
    });
    return new ResidualReader(model, context, state);
  }

  /** Why residual rows of this model cannot be trusted, or null. */
  get refusal(): string | null {
    return this.#context.hookRefusal;
  }

  /** The residual row after block `layer` at every position, nothing steered. Rejects when the model fails. */
  async rows(tokens: Int32Array, layer: number): Promise<Float32Array[]> {
    if (layer < this.#model.info.layerCount - 1) return this.#read(tokens, layer, 0);
    // After the last block only rows that ask for logits are kept: the prompt grows by one token at a time.
    const rows: Float32Array[] = [];
    for (let length = 1; length <= tokens.length; length += 1) {
      rows.push(...(await this.#read(tokens.subarray(0, length), layer, length - 1)));
    }
    return rows;
  }

  dispose(): Promise<void> {
    return this.#context.dispose();
  }

  async #read(tokens: Int32Array, layer: number, fromPosition: number): Promise<Float32Array[]> {
    const capture: CapturePlan = { layer, fromPosition, toPosition: tokens.length, readPoint: "pre_steering" };
    const job: GenerationJob = {
      jobId: this.#nextJobId++,
      sequenceId: 0,
      copyFromSequenceId: 0,
      keepTokens: fromPosition,
      tokens: Int32Array.from(tokens),
      maxTokens: 1,
      ignoreEndOfGeneration: true,
      stopStrings: [],
      sampler: GREEDY,
      logprobs: -1,
      promptLogprobs: false,
      renderedTokens: new Int32Array(0),
      edits: [],
      sensing: [],
      capture: [capture],
    };
    const rows: (Float32Array | undefined)[] = [];
    const finished = await new Promise<JobFinished>((end) => {
      this.#state.open = { rows, end };
      this.#context.submit(job);
    });
    this.#state.open = null;
    if (finished.errorCode !== null) throw new Error(finished.errorMessage ?? finished.errorCode);
    return Array.from({ length: tokens.length - fromPosition }, (_, place) => {
      const row = rows[fromPosition + place];
      if (row === undefined) throw new Error(`the row at position ${fromPosition + place} was not read`);
      return row;
    });
  }
}

function collect({ captured, finished }: StepEvents, open: OpenRead, width: number): void {
  for (const { positions, rows } of captured) {
    positions.forEach((position, place) => {
      open.rows[position] = rows.slice(place * width, (place + 1) * width);
    });
  }
  const [end] = finished;
  if (end !== undefined) open.end(end);
}
