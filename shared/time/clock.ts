/** Timers hold 31 bits of milliseconds, nearly 25 days: a longer delay would fire at once. */
export const LONGEST_TIMER_MS = 2 ** 31 - 1;

/** The only source of time for code that decides by it. Tests pass a manual one. */
export interface Clock {
  /** Wall time, milliseconds since the Unix epoch. May step; never measure a duration with it. */
  nowMs(): number;
  /** Never steps back. Only differences mean something. */
  monotonicMs(): number;
  /** Runs `fire` once after `delayMs`, or after `LONGEST_TIMER_MS` where that is longer. The returned function cancels it and may be called twice. */
  after(delayMs: number, fire: () => void): () => void;
}
