import { describe, expect, it } from "vitest";
import { watchForStall } from "../../../../backend/engine/load/stall-watch.ts";
import { ManualClock } from "../../../support/manual-clock.ts";

describe("the watch for a native core that stands still", () => {
  const setUp = () => {
    const clock = new ManualClock();
    const state = { stalledMs: 0, stalls: 0 };
    const stop = watchForStall({ clock, stalledMs: () => state.stalledMs, onStall: () => void (state.stalls += 1) });
    return { clock, state, stop };
  };

  it("tells a core that owes a step for more than two minutes, once", () => {
    const { clock, state } = setUp();
    state.stalledMs = 120_000;
    clock.advance(30_000);
    expect(state.stalls).toBe(0);
    state.stalledMs = 120_001;
    clock.advance(30_000);
    expect(state.stalls).toBe(1);
  });

  it("lets a core go on that was late at one look only, as after a halt of the whole process", () => {
    const { clock, state } = setUp();
    state.stalledMs = 500_000;
    clock.advance(5_000);
    state.stalledMs = 0;
    clock.advance(30_000);
    expect(state.stalls).toBe(0);
  });

  it("looks no more when it is stopped", () => {
    const { clock, state, stop } = setUp();
    stop();
    state.stalledMs = 500_000;
    clock.advance(30_000);
    expect(state.stalls).toBe(0);
  });
});
