import { describe, expect, it } from "vitest";
import {
  backOffMs,
  HEALTHY_AFTER_MS,
  type Lifecycle,
  type LifecycleEvent,
  type LifecycleSettings,
  STOPPED,
  step,
} from "../../../../backend/supervisor/lifecycle.ts";

const SETTINGS: LifecycleSettings = { startupTimeoutMs: 600_000, restartBaseMs: 1_000, restartMaxMs: 300_000 };

/** Runs events, each at its time, and gives the state after the last with the effects of the last. */
function after(...events: (readonly [LifecycleEvent, number])[]) {
  let state: Lifecycle = STOPPED;
  let effects: readonly { type: string; delayMs?: number }[] = [];
  for (const [event, atMs] of events) ({ next: state, effects } = step(state, event, atMs, SETTINGS));
  return { state, effects };
}
const start: LifecycleEvent = { type: "start" };
const ready: LifecycleEvent = { type: "ready" };
const retry: LifecycleEvent = { type: "retry_due" };
const ended = (reason = "crashed", unusable = false): LifecycleEvent => ({ type: "ended", reason, unusable });

describe("the life cycle of an engine", () => {
  it("spawns a process and gives it the startup timeout", () => {
    const { state, effects } = after([start, 0]);
    expect(state.phase).toBe("starting");
    expect(effects).toEqual([{ type: "spawn" }, { type: "arm_startup", delayMs: 600_000 }]);
  });

  it("is ready at the engine's first word, and only then", () => {
    expect(after([start, 0], [ready, 5]).state).toMatchObject({ phase: "ready", readySinceMs: 5, reason: null });
    expect(after([ready, 5]).state.phase).toBe("stopped");
  });

  it("ends an engine hard that does not become ready in time, and says so", () => {
    const timedOut = after([start, 0], [{ type: "startup_timed_out" }, 600_000]);
    expect(timedOut.effects).toEqual([{ type: "end_hard" }]);
    const { state } = after(
      [start, 0],
      [{ type: "startup_timed_out" }, 600_000],
      [ended("was ended by SIGKILL"), 600_001],
    );
    expect(state).toMatchObject({ phase: "backing_off", reason: "did not become ready in time" });
  });

  it("ends an engine hard that fell silent, but not one that starts", () => {
    expect(after([start, 0], [ready, 1], [{ type: "fell_silent" }, 2]).effects).toEqual([{ type: "end_hard" }]);
    expect(after([start, 0], [{ type: "fell_silent" }, 2]).effects).toEqual([]);
  });

  it("waits longer after each end in a row, from 1 s up to 5 min", () => {
    const delays: (number | undefined)[] = [];
    let state = STOPPED;
    let atMs = 0;
    for (let round = 0; round < 11; round++) {
      ({ next: state } = step(state, round === 0 ? start : retry, atMs, SETTINGS));
      ({ next: state } = step(state, ready, atMs + 10, SETTINGS));
      const end = step(state, ended(), atMs + 20, SETTINGS);
      state = end.next;
      const armed = end.effects.find((effect) => effect.type === "arm_retry");
      delays.push(armed?.type === "arm_retry" ? armed.delayMs : undefined);
      expect(state.retryAtMs).toBe(atMs + 20 + (delays.at(-1) ?? 0));
      atMs += 1_000_000;
    }
    expect(delays).toEqual([1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300].map((seconds) => seconds * 1_000));
  });

  it("calls a replica failed from the third end in a row on, and still tries again", () => {
    const ends = [
      [start, 0],
      [ended(), 1],
      [retry, 2],
      [ended(), 3],
      [retry, 4],
      [ended(), 5],
    ] as const;
    expect(after(...ends.slice(0, 4)).state.phase).toBe("backing_off");
    const third = after(...ends);
    expect(third.state.phase).toBe("failed");
    expect(third.effects).toContainEqual({ type: "arm_retry", delayMs: 4_000 });
    expect(after(...ends, [retry, 6]).state.phase).toBe("starting");
  });

  it("forgets earlier failures after a healthy minute", () => {
    const before = [
      [start, 0],
      [ended(), 1],
      [retry, 2],
      [ended(), 3],
      [retry, 4],
      [ready, 5],
    ] as const;
    expect(after(...before, [ended(), 5 + HEALTHY_AFTER_MS]).state).toMatchObject({
      phase: "backing_off",
      failures: 1,
    });
    expect(after(...before, [ended(), 4 + HEALTHY_AFTER_MS]).state).toMatchObject({ phase: "failed", failures: 3 });
  });

  it("fails at once on a file that cannot be used, and looks again only after the longest delay", () => {
    const { state, effects } = after([start, 0], [ended("model.gguf: truncated", true), 1]);
    expect(state).toMatchObject({ phase: "failed", reason: "model.gguf: truncated" });
    expect(effects).toContainEqual({ type: "arm_retry", delayMs: 300_000 });
  });

  it("ends softly when told to stop, and does not start again", () => {
    const stopping = after([start, 0], [ready, 1], [{ type: "stop" }, 2]);
    expect(stopping.effects).toContainEqual({ type: "end_softly" });
    const gone = after([start, 0], [ready, 1], [{ type: "stop" }, 2], [ended("code 0"), 3]);
    expect(gone.state).toEqual(STOPPED);
    expect(gone.effects).toEqual([{ type: "disarm" }]);
    expect(after([start, 0], [ended(), 1], [{ type: "stop" }, 2], [retry, 3]).state.phase).toBe("stopped");
  });

  it("keeps a draining engine running", () => {
    const { state, effects } = after([start, 0], [ready, 1], [{ type: "drain" }, 2]);
    expect([state.phase, effects]).toEqual(["draining", []]);
  });

  it("never overflows the back-off", () => {
    expect(backOffMs(10_000, SETTINGS)).toBe(300_000);
  });
});
