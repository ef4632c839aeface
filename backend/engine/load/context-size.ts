/** Cells a context has at least room for where windows are long: more is taken by fewer requests at a time. */
const ENOUGH_CELLS = 65_536;
/** A sequence that was cancelled may hold a token or two more than its labels say. */
const SPARE_CELLS_PER_SLOT = 8;
const CELL_STEP = 256;
const LEAST_WINDOW = 1_024;

/** One pool of cells for all sequences, or a stream of cells for each. */
export type KvLayout = "unified" | "streams";

export interface ContextSize {
  /** Window of one request. */
  readonly contextLength: number;
  /** Cells that requests may reserve. */
  readonly cellCount: number;
  /** Cells of the native context: a little more than may be reserved. */
  readonly nativeCells: number;
  readonly layout: KvLayout;
}

/** How many sequences there are, and when each gets cells of its own: never, where whole windows fit, or always. */
export interface SizeWish {
  readonly slots: number;
  readonly streams: "never" | "fitting" | "always";
}

/** `asked` is a ceiling on the window, 0 for what the model was trained on. All slots fit at full length up to 65,536 cells. */
export function contextSize(asked: number, trainingContextLength: number, wish: SizeWish): ContextSize {
  const contextLength = asked === 0 ? trainingContextLength : Math.min(asked, trainingContextLength);
  const all = contextLength * wish.slots;
  const enough = wish.streams === "always" ? all : Math.min(all, Math.max(contextLength, ENOUGH_CELLS));
  return sized(contextLength, enough, wish);
}

/**
 * What to try next when there is no memory for this size: fewer windows at full length, which gives up streams, then
 * shorter windows; null when a shorter one would be of no use.
 */
export function smallerContext({ contextLength, cellCount }: ContextSize, wish: SizeWish): ContextSize | null {
  const always = wish.streams === "always";
  if (cellCount > contextLength && !always) {
    return sized(contextLength, Math.max(contextLength, Math.floor(cellCount / 2)), wish);
  }
  if (contextLength <= LEAST_WINDOW) return null;
  const shorter = Math.max(LEAST_WINDOW, Math.floor(contextLength / 2));
  return sized(shorter, always ? shorter * wish.slots : shorter, wish);
}

function sized(contextLength: number, cellCount: number, { slots, streams }: SizeWish): ContextSize {
  if (slots > 1 && streams !== "never" && cellCount >= contextLength * slots) {
    const stream = roundedUp(contextLength + SPARE_CELLS_PER_SLOT);
    return { contextLength, cellCount, nativeCells: stream * slots, layout: "streams" };
  }
  return {
    contextLength,
    cellCount,
    nativeCells: roundedUp(cellCount + slots * SPARE_CELLS_PER_SLOT),
    layout: "unified",
  };
}

/** llama.cpp rounds a cache, and every stream of it, up to such steps by itself. */
function roundedUp(cells: number): number {
  return Math.ceil(cells / CELL_STEP) * CELL_STEP;
}
