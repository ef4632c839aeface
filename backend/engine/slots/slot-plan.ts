import { commonCells, type CellLabels } from "./cell-labels.ts";

export type SequenceState =
  | { readonly id: number; readonly state: "idle"; readonly cells: CellLabels; readonly lastUsed: number }
  | {
      readonly id: number;
      readonly state: "running";
      readonly reservedCells: number;
      /** Cells that others may copy while it runs: those of its prompt, once they are computed. */
      readonly lends: CellLabels;
    };

export interface StartRequest {
  readonly labels: CellLabels;
  /** Prompt and all tokens that may be sampled: cells are reserved for the whole of it, so that no stream fails later. */
  readonly boundCells: number;
  /** Cells from this position on must be computed anew: the first position that is sensed. */
  readonly reuseLimit: number;
}

export type StartDecision =
  | {
      readonly kind: "start";
      readonly sequenceId: number;
      readonly copyFromSequenceId: number;
      readonly keepTokens: number;
      /** Idle sequences whose cells must be forgotten first. */
      readonly evict: readonly number[];
    }
  | { readonly kind: "wait" };

/** What is dearer where every sequence has a stream of cells of its own. */
export interface StreamCosts {
  /** A copy moves a whole stream: a shorter prefix than this many tokens is computed faster. */
  readonly leastCopy: number;
}

type Idle = Extract<SequenceState, { state: "idle" }>;

/**
 * Which sequence a request takes, which prefix it starts from and who must make room. The longest common prefix wins.
 * A sequence most of whose cells would be dropped lends them to another one and keeps its own. Cells shared by a copy
 * are counted twice, so the true use of the cache is never above what is reckoned here.
 */
export function decideStart(
  sequences: readonly SequenceState[],
  cellCount: number,
  request: StartRequest,
  streams: StreamCosts | null = null,
): StartDecision {
  const idle = sequences.filter((sequence): sequence is Idle => sequence.state === "idle").toSorted(leastUsedFirst);
  const spare = streams === null ? idle[0] : besideRunning(idle, sequences);
  if (spare === undefined) return { kind: "wait" };
  const reserved = sequences.reduce((sum, one) => sum + (one.state === "running" ? one.reservedCells : 0), 0);
  const room = cellCount - reserved - request.boundCells;
  if (room < 0) return { kind: "wait" };

  const { donor, keepTokens } = longestPrefix(idle, request);
  const lender = longestLoan(sequences, request);
  const leastCopy = streams?.leastCopy ?? 1;
  if (lender !== null && lender.keepTokens > keepTokens && lender.keepTokens >= leastCopy) {
    // `spare` holds what was used least, so nothing that is kept is lost to the copy.
    const evict = evictions(idle, [spare.id], room) ?? [];
    return { ...start(spare.id, lender.id, lender.keepTokens), evict };
  }
  if (donor === null) {
    return { ...start(spare.id, spare.id, 0), evict: evictions(idle, [spare.id], room) ?? [] };
  }
  const other = spare.id === donor.id ? idle.find(({ id }) => id !== donor.id) : spare;
  if (keepTokens < leastCopy && keepTokens * 2 < donor.cells.tokens.length && other !== undefined) {
    return { ...start(other.id, other.id, 0), evict: evictions(idle, [other.id], room) ?? [] };
  }
  if (other !== undefined && keepTokens * 2 < donor.cells.tokens.length && donor.cells.tokens.length <= room) {
    const evict = evictions(idle, [other.id, donor.id], room - donor.cells.tokens.length);
    if (evict !== null) return { ...start(other.id, donor.id, keepTokens), evict };
  }
  return { ...start(donor.id, donor.id, keepTokens), evict: evictions(idle, [donor.id], room) ?? [] };
}

const start = (sequenceId: number, copyFromSequenceId: number, keepTokens: number) =>
  ({ kind: "start", sequenceId, copyFromSequenceId, keepTokens }) as const;

/** Empty sequences come first, then the one whose last use lies furthest back. */
function leastUsedFirst(a: Idle, b: Idle): number {
  const emptiness = Number(a.cells.tokens.length > 0) - Number(b.cells.tokens.length > 0);
  return emptiness || a.lastUsed - b.lastUsed || a.id - b.id;
}

/**
 * The spare sequence where streams are computed together only if they are neighbours: of those that are empty, or else of
 * all, the one with most running neighbours, then the one used least.
 */
function besideRunning(idle: readonly Idle[], sequences: readonly SequenceState[]): Idle | undefined {
  const busy = new Set(sequences.filter(({ state }) => state === "running").map(({ id }) => id));
  const empty = idle.filter(({ cells }) => cells.tokens.length === 0);
  const choice = empty.length > 0 ? empty : idle;
  const neighbours = ({ id }: Idle): number => Number(busy.has(id - 1)) + Number(busy.has(id + 1));
  return choice.toSorted((a, b) => neighbours(b) - neighbours(a))[0];
}

function longestLoan(
  sequences: readonly SequenceState[],
  request: StartRequest,
): { readonly id: number; readonly keepTokens: number } | null {
  const most = Math.min(request.reuseLimit, request.labels.tokens.length - 1);
  let best: { readonly id: number; readonly keepTokens: number } | null = null;
  for (const sequence of sequences) {
    if (sequence.state !== "running") continue;
    const keepTokens = Math.min(most, commonCells(sequence.lends, request.labels));
    if (keepTokens > (best?.keepTokens ?? 0)) best = { id: sequence.id, keepTokens };
  }
  return best;
}

function longestPrefix(idle: readonly Idle[], request: StartRequest): { donor: Idle | null; keepTokens: number } {
  // The last prompt token is always evaluated: its logits start the answer.
  const most = Math.min(request.reuseLimit, request.labels.tokens.length - 1);
  let donor: Idle | null = null;
  let keepTokens = 0;
  for (const sequence of idle) {
    const count = Math.min(most, commonCells(sequence.cells, request.labels));
    if (count > keepTokens) {
      donor = sequence;
      keepTokens = count;
    }
  }
  return { donor, keepTokens };
}

/** The least used idle sequences to forget until the others fit into `room` cells; null when even all are not enough. */
function evictions(idle: readonly Idle[], kept: readonly number[], room: number): number[] | null {
  const candidates = idle.filter(({ id, cells }) => !kept.includes(id) && cells.tokens.length > 0);
  let held = candidates.reduce((sum, { cells }) => sum + cells.tokens.length, 0);
  const evict: number[] = [];
  for (const { id, cells } of candidates) {
    if (held <= room) break;
    evict.push(id);
    held -= cells.tokens.length;
  }
  return held <= room ? evict : null;
}
