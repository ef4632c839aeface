/** The life of one replica's engine processes, as decisions only. Times are monotonic milliseconds. */
export type Phase = "stopped" | "starting" | "ready" | "backing_off" | "failed" | "draining";

export interface Lifecycle {
  readonly phase: Phase;
  /** Ends in a row without a healthy minute between; the back-off doubles with it. */
  readonly failures: number;
  readonly readySinceMs: number | null;
  /** Why the last process ended, for operators; null while all is well. */
  readonly reason: string | null;
  /** When the next start is due, in `backing_off` and `failed`. */
  readonly retryAtMs: number | null;
}

export type LifecycleEvent =
  | { readonly type: "start" }
  /** The engine's first word on its events stream. */
  | { readonly type: "ready" }
  /** `unusable`: what it was given cannot be loaded, so an early retry is pointless. */
  | { readonly type: "ended"; readonly reason: string; readonly unusable: boolean }
  | { readonly type: "startup_timed_out" }
  | { readonly type: "fell_silent" }
  | { readonly type: "retry_due" }
  | { readonly type: "drain" }
  | { readonly type: "stop" };

export type LifecycleEffect =
  | { readonly type: "spawn" }
  | { readonly type: "end_softly" }
  | { readonly type: "end_hard" }
  | { readonly type: "arm_startup"; readonly delayMs: number }
  | { readonly type: "arm_retry"; readonly delayMs: number }
  | { readonly type: "disarm" };

export interface LifecycleSettings {
  readonly startupTimeoutMs: number;
  readonly restartBaseMs: number;
  readonly restartMaxMs: number;
}

export interface Step {
  readonly next: Lifecycle;
  readonly effects: readonly LifecycleEffect[];
}

/** An engine that was ready this long has proved itself: its next end is a first failure again. */
export const HEALTHY_AFTER_MS = 60_000;
/** From this many ends in a row on, the replica is called failed; it is still tried again. */
export const FAILURES_UNTIL_FAILED = 3;

export const STOPPED: Lifecycle = { phase: "stopped", failures: 0, readySinceMs: null, reason: null, retryAtMs: null };

/** What happens next. An event that does not fit the phase changes nothing. */
export function step(state: Lifecycle, event: LifecycleEvent, nowMs: number, settings: LifecycleSettings): Step {
  const running = state.phase === "starting" || state.phase === "ready" || state.phase === "draining";
  switch (event.type) {
    case "start":
    case "retry_due":
      if (running || (event.type === "retry_due" && state.phase === "stopped")) return unchanged(state);
      return {
        next: { ...state, phase: "starting", readySinceMs: null, retryAtMs: null, reason: null },
        effects: [{ type: "spawn" }, { type: "arm_startup", delayMs: settings.startupTimeoutMs }],
      };
    case "ready":
      if (state.phase !== "starting") return unchanged(state);
      return {
        next: { ...state, phase: "ready", readySinceMs: nowMs, reason: null },
        effects: [{ type: "disarm" }],
      };
    case "startup_timed_out":
      if (state.phase !== "starting") return unchanged(state);
      return { next: { ...state, reason: "did not become ready in time" }, effects: [{ type: "end_hard" }] };
    case "fell_silent":
      if (state.phase !== "ready") return unchanged(state);
      return { next: { ...state, reason: "stopped answering" }, effects: [{ type: "end_hard" }] };
    case "ended":
      return running ? afterEnd(state, event, nowMs, settings) : unchanged(state);
    case "drain":
      if (state.phase !== "ready") return unchanged(state);
      return { next: { ...state, phase: "draining" }, effects: [] };
    case "stop":
      break;
  }
  if (!running) return { next: { ...STOPPED, reason: state.reason }, effects: [{ type: "disarm" }] };
  return { next: { ...state, phase: "draining" }, effects: [{ type: "disarm" }, { type: "end_softly" }] };
}

function afterEnd(
  state: Lifecycle,
  { reason, unusable }: { reason: string; unusable: boolean },
  nowMs: number,
  settings: LifecycleSettings,
): Step {
  if (state.phase === "draining") return { next: { ...STOPPED, reason: null }, effects: [{ type: "disarm" }] };
  const healthy = state.readySinceMs !== null && nowMs - state.readySinceMs >= HEALTHY_AFTER_MS;
  const failures = healthy ? 1 : state.failures + 1;
  const delayMs = unusable ? settings.restartMaxMs : backOffMs(failures, settings);
  return {
    next: {
      phase: unusable || failures >= FAILURES_UNTIL_FAILED ? "failed" : "backing_off",
      failures,
      readySinceMs: null,
      reason: state.reason ?? reason,
      retryAtMs: nowMs + delayMs,
    },
    effects: [{ type: "disarm" }, { type: "arm_retry", delayMs }],
  };
}

/** Doubles from the base with each failure in a row, up to the maximum. */
export function backOffMs(
  failures: number,
  settings: Pick<LifecycleSettings, "restartBaseMs" | "restartMaxMs">,
): number {
  return Math.min(settings.restartMaxMs, settings.restartBaseMs * 2 ** Math.min(30, Math.max(0, failures - 1)));
}

const unchanged = (state: Lifecycle): Step => ({ next: state, effects: [] });
