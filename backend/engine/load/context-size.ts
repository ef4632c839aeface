/** Cells a context has at least room for where windows are long: more is taken by fewer requests at a time. */
const ENOUGH_CELLS = 65_536;
/** A sequence that was cancelled may hold a token or two more than its labels say. */
const SPARE_CELLS_PER_SLOT = 8;
const CELL_STEP = 256;
const LEAST_WINDOW = 1_024;

export interface ContextSize {
  /** Window of one request. */
  readonly contextLength: number;
  /** Cells that requests may reserve. */
  readonly cellCount: number;
  /** Cells of the native context: a little more than may be reserved. */
  readonly nativeCells: number;
}

/** `asked` is a ceiling on the window, 0 for what the model was trained on. All slots fit at full length up to 65,536 cells. */
export function contextSize(asked: number, trainingContextLength: number, slots: number): ContextSize {
  const contextLength = asked === 0 ? trainingContextLength : Math.min(asked, trainingContextLength);
  return sized(contextLength, Math.min(contextLength * slots, Math.max(contextLength, ENOUGH_CELLS)), slots);
}

/**
 * What to try next when there is no memory for this size: fewer windows at full length, then shorter windows; null when
 * a shorter one would be of no use.
 */
export function smallerContext({ contextLength, cellCount }: ContextSize, slots: number): ContextSize | null {
  if (cellCount > contextLength) return sized(contextLength, Math.max(contextLength, Math.floor(cellCount / 2)), slots);
  if (contextLength <= LEAST_WINDOW) return null;
  const shorter = Math.max(LEAST_WINDOW, Math.floor(contextLength / 2));
  return sized(shorter, shorter, slots);
}

function sized(contextLength: number, cellCount: number, slots: number): ContextSize {
  const nativeCells = Math.ceil((cellCount + slots * SPARE_CELLS_PER_SLOT) / CELL_STEP) * CELL_STEP;
  return { contextLength, cellCount, nativeCells };
}
