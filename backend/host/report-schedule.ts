/** Reports about changes are at least this far apart, milliseconds. */
export const SHORTEST_GAP_MS = 100;

/** An edge that refuses connections is most likely being started again: for so long it is tried in even steps. */
export const STEADY_MS = 10_000;

export interface ReportTimes {
  /** Between reports when nothing changes. */
  readonly everyMs: number;
  /** Least time between two reports when something does. */
  readonly gapMs: number;
}

/** An edge that asks for slower reports gets the ones about changes slower in the same measure. */
export function reportTimes(heartbeatMs: number, askedMs: number): ReportTimes {
  const everyMs = Math.max(heartbeatMs, askedMs);
  return { everyMs, gapMs: Math.min(everyMs, Math.round((SHORTEST_GAP_MS * everyMs) / heartbeatMs)) };
}

/** Doubles from the base up to the maximum; the upper half is random, so that hosts do not come back all at once. */
export function backOffWithJitterMs(failures: number, baseMs: number, maxMs: number, random: number): number {
  const full = Math.min(maxMs, baseMs * 2 ** Math.min(30, Math.max(0, failures - 1)));
  return Math.round(full / 2 + (full / 2) * random);
}
