import { beforeEach, describe, expect, it } from "vitest";
import type { AccountBoard, BoardAccount } from "../../../../backend/ports/account-board.ts";
import { type RunningRequest, RunningRequests } from "../../../../backend/host/running-requests.ts";
import type { EndedRequest } from "../../../../shared/protocol/report.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

const NAMES = { edge: "edge-1", requestId: "req_a", attempt: 1 };
const GRACE_MS = 5_000;

const counts = (computed_prompt: number, cached_prompt: number, computed_completion: number) => ({
  request_id: "req_a",
  attempt: 1,
  computed_prompt,
  cached_prompt,
  computed_completion,
});

describe("running requests", () => {
  let clock: ManualClock;
  let recorded: EndedRequest[];
  let running: RunningRequests;
  let request: RunningRequest;
  let board: AccountBoard | null;

  beforeEach(() => {
    clock = new ManualClock();
    recorded = [];
    board = null;
    running = new RunningRequests({
      replica: "sim",
      epoch: 7,
      clock,
      record: (entry) => recorded.push(entry),
      onChange: () => undefined,
      readBoard: () => board,
    });
    request = running.begin(NAMES, 1);
  });

  const load = (...lines: ReturnType<typeof counts>[]): void =>
    running.onLoad({
      type: "load",
      in_flight: lines.length,
      waiting: 0,
      free_kv_cells: 0,
      total_kv_cells: 0,
      tokens_per_second: 0,
      prefill_tokens_per_second: 0,
      running: lines,
    });

  it("records zeros for a request that its edge gave up before any engine began", () => {
    running.neverBegan({ ...NAMES, requestId: "req_b" }, "exact");
    expect(recorded).toMatchObject([
      { ...counts(0, 0, 0), request_id: "req_b", outcome: "cancelled", exactness: "exact", edge: "edge-1" },
    ]);
  });

  it("records exact zeros for a request that its edge took back before a living engine read it", () => {
    request.close("cancelled");
    load();
    clock.advance(GRACE_MS);
    expect(recorded).toMatchObject([{ ...counts(0, 0, 0), outcome: "cancelled", exactness: "exact" }]);
  });

  it("records the engine's own account, whether it comes before or after the exchange's end", () => {
    running.onEnded({ type: "ended", ...counts(10, 2, 5), outcome: "completed" });
    request.close("completed");
    clock.advance(60_000);
    expect(recorded).toEqual([
      {
        ...counts(10, 2, 5),
        edge: "edge-1",
        replica: "sim",
        epoch: 7,
        ended_at: Date.UTC(2026, 0, 1),
        outcome: "completed",
        exactness: "exact",
      },
    ]);
    const second = running.begin({ ...NAMES, requestId: "req_b" }, 1);
    second.close("cancelled");
    running.onEnded({ type: "ended", ...counts(3, 0, 1), request_id: "req_b", outcome: "cancelled" });
    clock.advance(60_000);
    expect(recorded[1]).toMatchObject({ request_id: "req_b", outcome: "cancelled", exactness: "exact" });
    expect(recorded).toHaveLength(2);
  });

  it.each(["unreached", "unheard"] as const)("forgets a request that ended %s, so that it may begin again", (end) => {
    running.onInstanceEnd(1);
    request.close(end);
    expect(running.size).toBe(0);
    running.begin(NAMES, 2);
    running.onEnded({ type: "ended", ...counts(10, 0, 5), outcome: "completed" });
    expect(recorded).toMatchObject([{ ...counts(10, 0, 5), outcome: "completed", exactness: "exact" }]);
  });

  it("counts at once for an exchange that broke after its engine's end", () => {
    running.onInstanceEnd(1);
    request.sawEvents(3);
    request.close("broke");
    expect(recorded).toMatchObject([{ computed_completion: 2, outcome: "failed", exactness: "counted" }]);
  });

  it("counts for a dead engine: its last word or what passed by, whichever is more", () => {
    load(counts(10, 4, 3));
    request.sawEvents(9);
    running.onInstanceEnd(1);
    expect(recorded).toMatchObject([{ ...counts(10, 4, 8), outcome: "failed", exactness: "counted" }]);
  });

  const boardWith = (account: Partial<BoardAccount> | null, isComplete = true): AccountBoard => ({
    accountOf: (label) =>
      account === null || label !== "req_a.1" ? null : { ...counts(0, 0, 0), ended: false, ...account },
    isComplete,
  });

  it("takes a dead engine's account from its board, to the last token", () => {
    load(counts(10, 4, 3));
    request.sawEvents(2);
    board = boardWith(counts(11, 4, 7));
    running.onInstanceEnd(1);
    expect(recorded).toMatchObject([{ ...counts(11, 4, 7), outcome: "failed", exactness: "exact" }]);
  });

  it("keeps the board of the dead engine for an exchange that ends later", () => {
    board = boardWith(counts(11, 4, 7));
    running.onInstanceEnd(1);
    board = null;
    expect(request.wasHeard()).toBe(true);
    request.close("broke");
    expect(recorded).toMatchObject([{ ...counts(11, 4, 7), outcome: "failed", exactness: "exact" }]);
  });

  it("knows from a complete board that a dead engine never began a request", () => {
    request.close("cancelled");
    board = boardWith(null);
    running.onInstanceEnd(1);
    expect(recorded).toMatchObject([{ ...counts(0, 0, 0), outcome: "cancelled", exactness: "exact" }]);
  });

  it("does not take an incomplete board's silence for zeros", () => {
    request.close("cancelled");
    board = boardWith(null, false);
    expect(request.isUntouched()).toBe(false);
    running.onInstanceEnd(1);
    expect(recorded).toMatchObject([{ outcome: "cancelled", exactness: "counted" }]);
  });

  it("may offer a request again that was started but not computed on, and not one that was", () => {
    board = boardWith({});
    expect([request.wasHeard(), request.isUntouched()]).toEqual([false, true]);
    board = boardWith(counts(1, 0, 0));
    expect([request.wasHeard(), request.isUntouched()]).toEqual([true, false]);
  });

  it("does not call zeros exact that a living engine's board contradicts", () => {
    request.close("cancelled");
    board = boardWith(counts(5, 0, 2));
    clock.advance(GRACE_MS);
    expect(recorded).toMatchObject([{ ...counts(5, 0, 2), outcome: "cancelled", exactness: "counted" }]);
  });

  it("takes from a living engine's board only what it has closed", () => {
    request.close("broke");
    board = boardWith(counts(5, 0, 2));
    load();
    clock.advance(GRACE_MS);
    expect(recorded).toMatchObject([{ exactness: "counted" }]);
    running.begin({ ...NAMES }, 1).close("broke");
    board = boardWith({ ...counts(5, 0, 2), ended: true });
    clock.advance(GRACE_MS);
    expect(recorded[1]).toMatchObject({ ...counts(5, 0, 2), exactness: "exact" });
  });

  it("leaves requests of the next process alone when one ends", () => {
    load(counts(1, 0, 0));
    running.begin({ ...NAMES, requestId: "req_b" }, 2);
    running.onInstanceEnd(1);
    expect(recorded.map(({ request_id }) => request_id)).toEqual(["req_a"]);
    expect(running.size).toBe(1);
  });

  it("calls a request that its edge had left cancelled, even when the engine died then", () => {
    request.close("cancelled");
    running.onInstanceEnd(1);
    expect(recorded).toMatchObject([{ outcome: "cancelled", exactness: "counted" }]);
  });

  it("waits for the account as long as the engine says that it works on the request", () => {
    request.close("cancelled");
    load(counts(10, 0, 1));
    clock.advance(GRACE_MS);
    expect(recorded).toEqual([]);
    expect(running.byEdge()).toEqual({ "edge-1": 1 });
    load();
    clock.advance(GRACE_MS);
    expect(recorded).toMatchObject([{ ...counts(10, 0, 1), outcome: "cancelled", exactness: "counted" }]);
  });

  it("takes a refusal's zeros as exact when the engine says nothing", () => {
    request.close("refused");
    clock.advance(GRACE_MS);
    expect(recorded).toMatchObject([{ ...counts(0, 0, 0), outcome: "failed", exactness: "exact" }]);
  });

  it("records one entry only, whatever comes afterwards", () => {
    load(counts(1, 0, 0));
    running.onInstanceEnd(1);
    running.onEnded({ type: "ended", ...counts(1, 1, 1), outcome: "completed" });
    request.close("broke");
    running.onInstanceEnd(1);
    clock.advance(60_000);
    expect(recorded).toHaveLength(1);
    expect(clock.pendingTimers).toBe(0);
  });

  it("counts in flight by edge what is open or still worked on", () => {
    running.begin({ edge: "edge-2", requestId: "req_b", attempt: 1 }, 1);
    expect(running.byEdge()).toEqual({ "edge-1": 1, "edge-2": 1 });
    request.close("completed");
    expect(running.byEdge()).toEqual({ "edge-2": 1 });
    expect(running.open).toBe(1);
  });

  it("estimates a wait from how long requests took", () => {
    expect(running.waitSeconds(1)).toBe(5);
    clock.advance(4_000);
    running.onEnded({ type: "ended", ...counts(1, 0, 1), outcome: "completed" });
    expect(running.waitSeconds(1)).toBe(4);
    expect(running.waitSeconds(4)).toBe(1);
  });
});
