import { ConfigError } from "../../../shared/config/read-config.ts";
import type { ModelInfo } from "../../native/binding.ts";
import type { EngineOptions } from "../../ports/engine-options.ts";
import type { ContextSize, SizeWish } from "./context-size.ts";

type LayoutOptions = Pick<EngineOptions, "kv_layout" | "slots" | "device" | "gpu_layers">;

/**
 * Streams by themselves on the processor only: attention there walks over every cell of the pool for every row. On a
 * card a batch whose sequences are no neighbours would be computed in several goes, which is what costs time there.
 * Throws `ConfigError` where streams are asked for and the model has a state instead of cells.
 */
export function sizeWish(options: LayoutOptions, model: Pick<ModelInfo, "recurrent" | "hybrid">): SizeWish {
  const { slots } = options;
  const hasState = model.recurrent || model.hybrid;
  if (options.kv_layout === "streams") {
    if (hasState) throw new ConfigError("kv_layout streams: this model keeps a state, which has no cells to divide");
    return { slots, streams: "always" };
  }
  const onProcessor = options.device === "cpu" || options.gpu_layers === 0;
  return { slots, streams: options.kv_layout === "auto" && onProcessor && !hasState ? "fitting" : "never" };
}

const BYTES_OF_VALUE = { f32: 4, f16: 2, q8_0: 34 / 32, q4_0: 18 / 32 } as const;
/** Bytes that memory copies in the time in which a thread multiplies with one weight; on today's processors about this. */
const BYTES_PER_WEIGHT = 1 / 8;

/**
 * Tokens from which a prefix is copied from stream to stream rather than computed anew: a copy moves all cells of a
 * stream however few are needed.
 */
export function leastCopiedTokens(
  size: Pick<ContextSize, "nativeCells">,
  model: Pick<ModelInfo, "architecture" | "layerCount" | "embeddingWidth" | "parameterCount" | "metadata">,
  {
    slots,
    threads,
    kvType,
  }: { readonly slots: number; readonly threads: number; readonly kvType: EngineOptions["kv_cache_type"] },
): number {
  const count = (name: string): number => Number(model.metadata[`${model.architecture}.attention.${name}`]);
  const sharedHeads = count("head_count_kv") / count("head_count");
  const width = model.embeddingWidth * (sharedHeads > 0 && sharedHeads < 1 ? sharedHeads : 1);
  const streamBytes = (size.nativeCells / slots) * 2 * model.layerCount * width * BYTES_OF_VALUE[kvType];
  return Math.max(1, Math.ceil((streamBytes * threads) / (model.parameterCount * BYTES_PER_WEIGHT)));
}
