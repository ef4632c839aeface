import type { Clock } from "../../../shared/time/clock.ts";

/** No edge waits this long between two tokens, so nobody is served by a step that takes longer. */
const LONGEST_STEP_MS = 120_000;
const LOOK_EVERY_MS = 5_000;
/** After a process was halted and goes on, its first look comes before the steps that it missed. */
const LOOKS_IN_A_ROW = 2;

export interface StallWatch {
  readonly clock: Pick<Clock, "after">;
  /** How long the native core has owed a step, milliseconds; 0 while it owes none. */
  readonly stalledMs: () => number;
  /** Once: the core is inside a call that does not come back, such as a grammar that grows without end. */
  readonly onStall: () => void;
}

const nothing = (): void => undefined;

/** Notices a native core that stands still: the process would tell its load for ever and answer nobody. Returns how to stop. */
export function watchForStall({ clock, stalledMs, onStall }: StallWatch): () => void {
  let stalled = 0;
  let cancel = nothing;
  const look = (): void => {
    stalled = stalledMs() > LONGEST_STEP_MS ? stalled + 1 : 0;
    if (stalled >= LOOKS_IN_A_ROW) onStall();
    else cancel = clock.after(LOOK_EVERY_MS, look);
  };
  look();
  return () => cancel();
}
