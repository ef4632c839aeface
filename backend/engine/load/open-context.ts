import type { Logger } from "../../../shared/logging/logger.ts";
import type { ContextOptions, NativeAccountBoard, NativeContext, NativeModel } from "../../native/binding.ts";
import { nativeErrorCode } from "../../native/load.ts";
import type { EngineOptions } from "../../ports/engine-options.ts";
import { smallerContext, type ContextSize, type SizeWish } from "./context-size.ts";

/** Tokens of one step; a longer prompt is evaluated in chunks beside the answers of others. */
const BATCH_TOKENS = 512;

export interface OpenedContext {
  readonly context: NativeContext;
  /** What memory had room for. */
  readonly size: ContextSize;
}

export interface ContextParts {
  readonly options: EngineOptions;
  readonly wish: SizeWish;
  readonly threads: number;
  /** Guesses for this model; null where nothing or no model does. */
  readonly draft: NativeModel | null;
  readonly accounts: NativeAccountBoard | null;
  readonly onStep: ContextOptions["onStep"];
}

/** Opens the context at the wanted size, or at the largest below it that fits into memory. */
export async function openContext(
  native: NativeModel,
  wanted: ContextSize,
  { options, wish, threads, draft, accounts, onStep }: ContextParts,
  logger: Logger,
): Promise<OpenedContext> {
  for (let size = wanted; ;) {
    try {
      const context = await native.createContext({
        sequenceCount: options.slots,
        cellCount: size.nativeCells,
        kvStreams: size.layout === "streams",
        batchTokens: Math.min(BATCH_TOKENS, size.nativeCells),
        threads,
        flashAttention: options.flash_attention,
        kvType: options.kv_cache_type,
        accounts,
        speculation: options.speculation === null ? null : { tokens: options.speculation.num_tokens, model: draft },
        onStep,
      });
      return { context, size };
    } catch (thrown) {
      const smaller = nativeErrorCode(thrown) === "out_of_memory" ? smallerContext(size, wish) : null;
      if (smaller === null) throw thrown;
      logger.warn("no memory for this context; a smaller one is tried", {
        cells: size.cellCount,
        next_cells: smaller.cellCount,
        next_context: smaller.contextLength,
        next_layout: smaller.layout,
      });
      size = smaller;
    }
  }
}
