/** The only source of time for code that decides by it. Tests pass a manual one. */
export interface Clock {
  /** Wall time, milliseconds since the Unix epoch. May step; never measure a duration with it. */
  nowMs(): number;
  /** Never steps back. Only differences mean something. */
  monotonicMs(): number;
  /** Runs `fire` once after `delayMs`. The returned function cancels it and may be called twice. */
  after(delayMs: number, fire: () => void): () => void;
}
