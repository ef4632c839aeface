import { ApiError } from "../../../shared/errors/api-error.ts";
import type { NativeEmbedder } from "../../native/binding.ts";
import type { Pooling } from "./pooling.ts";

/**
 * Inputs of one native call, which are computed in one batch: between calls another request gets its turn, and a
 * cancelled one stops. On CPU llama.cpp takes other kernels for larger batches (flash attention in tiles from 64 rows
 * on), whose rounding, amplified by quantised weights, moves a vector by up to 2e-3: there each input is computed
 * alone, so that it gets the same vector in any company. That costs about half a millisecond a text for the smallest
 * model and less, as a share, for larger ones, which keep a CPU busy with one. A GPU would stand idle.
 */
export const INPUTS_PER_CALL = { cpu: 1, gpu: 16 } as const;

/** An embedder's memory grows with the longest input it can take, so it is made as long as inputs really are. */
const LEAST_WINDOW = 2_048;

export interface EmbeddingTask {
  readonly inputs: readonly Int32Array[];
  readonly pooling: Pooling;
  /** Tokens computed so far, after every native call. */
  readonly onProgress: (computedTokens: number) => void;
  readonly signal: AbortSignal;
}

export interface EmbedderWish {
  readonly pooling: Pooling;
  /** Longest input, tokens. */
  readonly contextLength: number;
}
interface OpenEmbedder {
  readonly native: NativeEmbedder;
  readonly contextLength: number;
}

/** Owns the embedding contexts, which compute one call at a time; requests take turns call by call. */
export class EmbeddingQueue {
  readonly #open: (wish: EmbedderWish) => Promise<NativeEmbedder>;
  readonly #maxPending: number;
  readonly #inputsPerCall: number;
  readonly #embedders = new Map<Pooling, OpenEmbedder>();
  #turn: Promise<unknown> = Promise.resolve();
  #pending = 0;

  /** `open` runs at the first request: a model that only chats pays nothing for embeddings. */
  constructor(
    open: (wish: EmbedderWish) => Promise<NativeEmbedder>,
    options: { readonly maxPending: number; readonly inputsPerCall: number },
  ) {
    this.#open = open;
    this.#maxPending = options.maxPending;
    this.#inputsPerCall = options.inputsPerCall;
  }

  /** One vector per input in the inputs' order, of unit length. Rejects with the signal's reason when aborted. */
  async embed(task: EmbeddingTask): Promise<Float32Array[]> {
    if (this.#pending > this.#maxPending) throw new ApiError("engine_busy", { source: "backend" });
    this.#pending += 1;
    try {
      const vectors: Float32Array[] = [];
      let computed = 0;
      for (let at = 0; at < task.inputs.length; at += this.#inputsPerCall) {
        const slice = task.inputs.slice(at, at + this.#inputsPerCall);
        vectors.push(...(await this.#inTurn({ ...task, inputs: slice })));
        computed += slice.reduce((sum, { length }) => sum + length, 0);
        task.onProgress(computed);
      }
      return vectors.map(unitLength);
    } finally {
      this.#pending -= 1;
    }
  }

  #inTurn({ inputs, pooling, signal }: EmbeddingTask): Promise<Float32Array[]> {
    const call = this.#turn.then(async () => {
      signal.throwIfAborted();
      const longest = inputs.reduce((most, { length }) => Math.max(most, length), 0);
      return await (await this.#opened(pooling, longest)).embed(inputs);
    });
    this.#turn = call.catch(() => undefined);
    return call;
  }

  /** A context that could not be made (no memory) is tried again by the next request. */
  async #opened(pooling: Pooling, longest: number): Promise<NativeEmbedder> {
    const open = this.#embedders.get(pooling);
    if (open !== undefined && open.contextLength >= longest) return open.native;
    this.#embedders.delete(pooling);
    await open?.native.dispose();
    const contextLength = Math.max(LEAST_WINDOW, 2 ** Math.ceil(Math.log2(longest)));
    const native = await this.#open({ pooling, contextLength });
    this.#embedders.set(pooling, { native, contextLength });
    return native;
  }

  /** After the last request. */
  async dispose(): Promise<void> {
    await this.#turn;
    for (const { native } of this.#embedders.values()) await native.dispose();
  }
}

/** A vector of zeros has no direction and stays as it is. */
export function unitLength(vector: Float32Array): Float32Array {
  const length = Math.hypot(...vector);
  return length > 0 && Number.isFinite(length) ? vector.map((value) => value / length) : vector;
}
