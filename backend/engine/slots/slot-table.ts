import { NO_CELLS, type CellLabels } from "./cell-labels.ts";
import {
  decideStart,
  type SequenceState,
  type StartDecision,
  type StartRequest,
  type StreamCosts,
} from "./slot-plan.ts";

/** The sequences of one context and what their cells hold. A claimed sequence is given back exactly once. */
export class SlotTable {
  readonly cellCount: number;
  readonly #streams: StreamCosts | null;
  readonly #sequences: SequenceState[];
  #uses = 0;

  constructor(sequenceCount: number, cellCount: number, streams: StreamCosts | null = null) {
    this.cellCount = cellCount;
    this.#streams = streams;
    this.#sequences = Array.from({ length: sequenceCount }, (_, id) => ({
      id,
      state: "idle",
      cells: NO_CELLS,
      lastUsed: 0,
    }));
  }

  /** Decides, and takes the sequence if the decision is to start. */
  claim(request: StartRequest): StartDecision {
    const decision = decideStart(this.#sequences, this.cellCount, request, this.#streams);
    if (decision.kind === "start") {
      for (const id of decision.evict) this.#sequences[id] = { id, state: "idle", cells: NO_CELLS, lastUsed: 0 };
      const id = decision.sequenceId;
      this.#sequences[id] = { id, state: "running", reservedCells: request.boundCells, lends: NO_CELLS };
    }
    return decision;
  }

  /** The prompt of a running sequence is in its cells now, and others may copy from it. */
  lend(id: number, cells: CellLabels): void {
    const sequence = this.#sequences[id];
    if (sequence?.state === "running") this.#sequences[id] = { ...sequence, lends: cells };
  }

  /** `cells` is what the sequence surely holds now; its cells beyond that are dropped at the next start. */
  release(id: number, cells: CellLabels): void {
    if (this.#sequences[id]?.state !== "running") throw new Error(`sequence ${id} is released twice`);
    this.#uses += 1;
    this.#sequences[id] = { id, state: "idle", cells, lastUsed: this.#uses };
  }

  get runningCount(): number {
    return this.#sequences.filter(({ state }) => state === "running").length;
  }

  /** Cells that no running request has a right to; those of idle sequences are forgotten when needed. */
  get freeCells(): number {
    const reserved = this.#sequences.reduce((sum, one) => sum + (one.state === "running" ? one.reservedCells : 0), 0);
    return this.cellCount - reserved;
  }
}
