/** What one attempt may do to the client's answer. */
export interface AnswerSink {
  readonly startedAs: "stream" | "whole" | null;
  /** Told when a slow client has room again. */
  onRoom: () => void;
  /** No effect once the head has gone out. */
  setHeaders(headers: Readonly<Record<string, string>>): void;
  startStream(): void;
  startWhole(status: number, headers: Readonly<Record<string, string>>): void;
  /** False: hold back until `onRoom`. */
  write(chunk: Uint8Array | string): boolean;
  /** The client takes nothing any more. */
  drop(): void;
}
