import * as fc from "fast-check";
import { describe, expect, it } from "vitest";
import { commonCells, NO_CELLS, type CellLabels } from "../../../../backend/engine/slots/cell-labels.ts";
import { decideStart, type SequenceState } from "../../../../backend/engine/slots/slot-plan.ts";
import { SlotTable } from "../../../../backend/engine/slots/slot-table.ts";
import { WaitEstimate } from "../../../../backend/engine/slots/wait-estimate.ts";

const cells = (tokens: readonly number[], over: Partial<CellLabels> = {}): CellLabels => ({
  salt: "project",
  editDigest: "",
  ...over,
  tokens: Int32Array.from(tokens),
});
const idle = (id: number, tokens: readonly number[], lastUsed = id, over: Partial<CellLabels> = {}): SequenceState => ({
  id,
  state: "idle",
  cells: cells(tokens, over),
  lastUsed,
});
const running = (id: number, reservedCells: number): SequenceState => ({
  id,
  state: "running",
  lends: NO_CELLS,
  reservedCells,
});
const request = (tokens: readonly number[], boundCells = tokens.length + 4, reuseLimit = tokens.length) => ({
  labels: cells(tokens),
  boundCells,
  reuseLimit,
});

describe("cells", () => {
  it("are shared up to the first token that differs", () => {
    expect(commonCells(cells([1, 2, 3]), cells([1, 2, 4, 5]))).toBe(2);
  });
  it("are never shared with another project or under other edits", () => {
    expect(commonCells(cells([1, 2]), cells([1, 2], { salt: "other" }))).toBe(0);
    expect(commonCells(cells([1, 2]), cells([1, 2], { editDigest: "steered" }))).toBe(0);
    expect(commonCells(cells([1, 2], { editDigest: "steered" }), cells([1, 2], { editDigest: "steered" }))).toBe(2);
  });

  it("are shared as far as the edits of each position agree, whatever the plans are called", () => {
    const until = (end: number) => (position: number) => (position < end ? "edit" : "");
    const all = cells([1, 2, 3, 4], { editDigest: "edit" });
    const two = cells([1, 2, 3, 4], { editDigest: "plan a", editAt: until(2) });
    const three = cells([1, 2, 3, 4], { editDigest: "plan b", editAt: until(3) });
    expect(commonCells(all, two)).toBe(2);
    expect(commonCells(two, three)).toBe(2);
    expect(commonCells(three, all)).toBe(3);
    expect(commonCells(cells([1, 2, 3, 4]), two)).toBe(0);
    expect(commonCells(two, { ...two })).toBe(4);
  });
});

describe("a start", () => {
  it("goes on in the sequence that holds the longest prefix", () => {
    const sequences = [idle(0, [1, 2]), idle(1, [1, 2, 3, 4]), idle(2, [])];
    expect(decideStart(sequences, 100, request([1, 2, 3, 4, 5]))).toEqual({
      kind: "start",
      sequenceId: 1,
      copyFromSequenceId: 1,
      keepTokens: 4,
      evict: [],
    });
  });

  it("copies a short prefix and leaves the long conversation where it is", () => {
    const sequences = [idle(0, [1, 2, 3, 4, 5, 6, 7, 8]), idle(1, [])];
    expect(decideStart(sequences, 100, request([1, 2, 9]))).toMatchObject({
      sequenceId: 1,
      copyFromSequenceId: 0,
      keepTokens: 2,
    });
  });

  it("always evaluates the last prompt token", () => {
    expect(decideStart([idle(0, [1, 2, 3])], 100, request([1, 2, 3]))).toMatchObject({ keepTokens: 2 });
  });

  it("reuses nothing from the first sensed position on", () => {
    expect(decideStart([idle(0, [1, 2, 3, 4])], 100, request([1, 2, 3, 4], 8, 1))).toMatchObject({ keepTokens: 1 });
    expect(decideStart([idle(0, [1, 2, 3, 4])], 100, request([1, 2, 3, 4], 8, 0))).toMatchObject({ keepTokens: 0 });
  });

  it("takes an empty sequence first, then the one whose last use lies furthest back", () => {
    expect(decideStart([idle(0, [7], 1), idle(1, [])], 100, request([1]))).toMatchObject({ sequenceId: 1 });
    expect(decideStart([idle(0, [7], 9), idle(1, [8], 3)], 100, request([1]))).toMatchObject({ sequenceId: 1 });
  });

  it("forgets the least used idle cells until the whole bound fits", () => {
    const sequences = [idle(0, [7, 7, 7], 5), idle(1, [8, 8, 8], 2), idle(2, [])];
    expect(decideStart(sequences, 10, request([1], 6))).toMatchObject({ sequenceId: 2, evict: [1] });
    expect(decideStart(sequences, 10, request([1], 10))).toMatchObject({ sequenceId: 2, evict: [1, 0] });
  });

  it("goes on in place when the cache has no room for a copy", () => {
    const sequences = [idle(0, [1, 2, 3, 4, 5, 6, 7, 8]), idle(1, [])];
    expect(decideStart(sequences, 10, request([1, 2, 9], 6))).toMatchObject({ sequenceId: 0, keepTokens: 2 });
  });

  it("waits when no sequence is idle or when running ones have a right to the cells", () => {
    expect(decideStart([running(0, 5)], 100, request([1]))).toEqual({ kind: "wait" });
    expect(decideStart([running(0, 95), idle(1, [])], 100, request([1], 6))).toEqual({ kind: "wait" });
    expect(decideStart([running(0, 94), idle(1, [])], 100, request([1], 6))).toMatchObject({ kind: "start" });
  });

  it("never lets the cells in use and in reserve grow beyond the cache, whatever comes", () => {
    const step = fc.record({
      tokens: fc.array(fc.nat(2), { minLength: 1, maxLength: 12 }),
      more: fc.integer({ min: 1, max: 10 }),
      salt: fc.constantFrom("a", "b"),
      release: fc.boolean(),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 40 }), (steps) => {
        const cellCount = 30;
        const table = new SlotTable(4, cellCount);
        const held = new Map<number, number>();
        const open: { id: number; labels: CellLabels; bound: number }[] = [];
        for (const { tokens, more, salt, release } of steps) {
          const done = release ? open.shift() : undefined;
          if (done !== undefined) {
            table.release(done.id, done.labels);
            held.set(done.id, done.labels.tokens.length);
          }
          const labels = cells(tokens, { salt });
          const bound = tokens.length + more;
          const decision = table.claim({ labels, boundCells: bound, reuseLimit: tokens.length });
          if (decision.kind === "wait") continue;
          expect(open.map(({ id }) => id)).not.toContain(decision.sequenceId);
          expect(open.map(({ id }) => id)).not.toContain(decision.copyFromSequenceId);
          expect(decision.keepTokens).toBeLessThan(tokens.length);
          for (const id of decision.evict) held.set(id, 0);
          held.set(decision.sequenceId, bound);
          open.push({ id: decision.sequenceId, labels, bound });
          expect([...held.values()].reduce((sum, count) => sum + count, 0)).toBeLessThanOrEqual(cellCount);
        }
      }),
    );
  });
});

describe("a slot table", () => {
  it("refuses to take a sequence back twice", () => {
    const table = new SlotTable(1, 10);
    table.claim(request([1]));
    table.release(0, NO_CELLS);
    expect(() => table.release(0, NO_CELLS)).toThrow("twice");
  });
});

describe("a wait estimate", () => {
  it("says 5 seconds until it has seen three durations", () => {
    const estimate = new WaitEstimate();
    estimate.record(1);
    estimate.record(1);
    expect(estimate.seconds(10, 1)).toBe(5);
  });
  it("is the median duration times those ahead over the slots, in whole seconds from 1 to 60", () => {
    const estimate = new WaitEstimate();
    for (const ms of [2_000, 4_000, 90_000]) estimate.record(ms);
    expect(estimate.seconds(6, 2)).toBe(12);
    expect(estimate.seconds(0, 2)).toBe(1);
    expect(estimate.seconds(600, 2)).toBe(60);
  });
});

describe("where every sequence has a stream of cells", () => {
  const costly = { leastCopy: 4 };
  const twelve = Array.from({ length: 12 }, (_, i) => i + 1);
  const spareOf = (sequences: readonly SequenceState[], streams: typeof costly | null) =>
    decideStart(sequences, 100, request([99]), streams);

  it("a start joins its running neighbours, since only neighbours are computed together", () => {
    const sequences = [idle(0, []), running(1, 5), idle(2, []), running(3, 5), idle(4, [])];
    expect(spareOf(sequences, costly)).toMatchObject({ sequenceId: 2 });
    expect(spareOf(sequences, null)).toMatchObject({ sequenceId: 0 });
  });

  it("a start still takes an empty sequence first, and where nothing runs the one used least", () => {
    const beside = [idle(0, []), idle(1, [7]), running(2, 5)];
    expect(spareOf(beside, costly)).toMatchObject({ sequenceId: 0 });
    expect(spareOf([idle(0, [7], 9), idle(1, [8], 3)], costly)).toMatchObject({ sequenceId: 1 });
  });

  it("a prefix too short to be worth a copy is computed anew, without losing what the other one holds", () => {
    const sequences = [idle(0, twelve), idle(1, [])];
    const short = request([1, 2, 3, 77]);
    expect(decideStart(sequences, 100, short, costly)).toMatchObject({ sequenceId: 1, keepTokens: 0 });
    expect(decideStart(sequences, 100, short)).toMatchObject({ sequenceId: 1, copyFromSequenceId: 0, keepTokens: 3 });
    const long = request([1, 2, 3, 4, 77]);
    expect(decideStart(sequences, 100, long, costly)).toMatchObject({ copyFromSequenceId: 0, keepTokens: 4 });
  });

  it("a running prompt is lent from as many tokens on, and what lies in place is always kept", () => {
    const lender: SequenceState = { id: 0, state: "running", lends: cells([1, 2, 3, 4]), reservedCells: 9 };
    const sequences = [lender, idle(1, [])];
    expect(decideStart(sequences, 100, request([1, 2, 3, 77]), costly)).toMatchObject({ keepTokens: 0 });
    expect(decideStart(sequences, 100, request([1, 2, 3, 4, 77]), costly)).toMatchObject({ keepTokens: 4 });
    expect(decideStart([idle(0, [1, 2])], 100, request([1, 2, 3]), costly)).toMatchObject({ keepTokens: 2 });
  });
});

describe("the prompt of a running sequence", () => {
  const lending = (id: number, tokens: readonly number[]): SequenceState => ({
    id,
    state: "running",
    lends: cells(tokens),
    reservedCells: 10,
  });

  it("is copied into the least used sequence when nothing idle holds a longer prefix", () => {
    const states = [lending(0, [1, 2, 3, 4]), idle(1, [9], 5), idle(2, [1, 2], 1)];
    expect(decideStart(states, 100, request([1, 2, 3, 4, 5]))).toMatchObject({
      sequenceId: 2,
      copyFromSequenceId: 0,
      keepTokens: 4,
    });
    expect(decideStart([lending(0, [1]), idle(1, [1, 2])], 100, request([1, 2, 3]))).toMatchObject({
      sequenceId: 1,
      copyFromSequenceId: 1,
      keepTokens: 2,
    });
  });

  it("is not lent before it is computed, nor to another project, nor beyond what must be computed", () => {
    const table = new SlotTable(2, 100);
    table.claim(request([1, 2, 3]));
    expect(table.claim(request([1, 2, 3]))).toMatchObject({ keepTokens: 0 });
    table.release(1, NO_CELLS);
    table.lend(0, cells([1, 2, 3]));
    expect(table.claim(request([1, 2, 3, 4]))).toMatchObject({ copyFromSequenceId: 0, keepTokens: 3 });
    const asked = request([1, 2, 3, 4], 8, 2);
    expect(decideStart([lending(0, [1, 2, 3]), idle(1, [])], 100, asked)).toMatchObject({ keepTokens: 2 });
    const other = { ...asked, labels: cells([1, 2, 3, 4], { salt: "other" }) };
    expect(decideStart([lending(0, [1, 2, 3]), idle(1, [])], 100, other)).toMatchObject({ keepTokens: 0 });
  });
});
