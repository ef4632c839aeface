/**
 * An append-only log of JSON lines in numbered segments, where usage is safe before it is in the database.
 * Appending never waits for a disk: lines are handed to the system at the end of the tick and made durable by `sync`.
 */
export interface Journal {
  /**
   * Hands out what former runs left, oldest first; a torn last line and lines that are not JSON are skipped.
   * Called once, before the first append.
   */
  replay(take: (entry: unknown, segment: number) => void): Promise<void>;
  /**
   * Hands one segment out again, for what did not fit in memory. Without it the ledger keeps everything in memory that
   * the database does not have.
   */
  read?(segment: number, take: (entry: unknown) => void): Promise<void>;
  /** Answers the segment that holds the entry. Never refuses: what was let in must be able to end. */
  append(entry: object): number;
  /** Hands the lines appended so far to the system at once: they survive the end of this process. */
  writeOut(): void;
  /**
   * Makes everything appended so far survive a power cut. Rejects when the disk refuses; what it has then is not known,
   * and nothing new may be let in until a later one resolves.
   */
  sync(): Promise<void>;
  /** False when nothing new may be let in: the size bound is reached or the disk refuses. */
  hasRoom(): boolean;
  /** The oldest segment that still exists, and the one that is being written. */
  segments(): { readonly oldest: number; readonly newest: number };
  /** Ends the segment that is being written; the next entry opens a new one. */
  rotate(): void;
  /** Deletes every segment below the given one. */
  release(below: number): Promise<void>;
  close(): Promise<void>;
}
