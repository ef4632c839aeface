/**
 * Where an answer goes: one per request, made by the runtime leaf around its own response object, so that a stream
 * needs no web stream in between on Node. Contract: `start` once, then `write`s, then `end` or `destroy` once.
 */
export interface ResponseWriter {
  /** Sends status and headers. Throws when called twice. */
  start(status: number, headers: Readonly<Record<string, string>>): void;
  readonly started: boolean;
  /** False when the client is slower than we are: write no more until `onDrain` fires. Ignored once closed. */
  write(chunk: Uint8Array | string): boolean;
  end(): void;
  /** Breaks the connection, so that the client cannot take a cut answer for a whole one. */
  destroy(): void;
  /** The one listener for "there is room again". */
  onDrain(listener: () => void): void;
  /** The one listener for "the client went away before the end". Fires at once if it already has. */
  onClosed(listener: () => void): void;
  readonly closed: boolean;
}
