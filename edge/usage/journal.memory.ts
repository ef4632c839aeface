import type { Journal } from "../ports/journal.ts";

const ENTRIES_PER_SEGMENT = 5_000;

/**
 * A journal for runtimes without a disk: the lines live as long as the process or isolate, so its end loses what the
 * database does not have yet. It bounds the entries instead of bytes.
 */
export class MemoryJournal implements Journal {
  readonly #maxEntries: number;
  readonly #entries = new Map<number, number>();
  #newest = 1;

  constructor(maxEntries = 100_000) {
    this.#maxEntries = maxEntries;
  }

  async replay(): Promise<void> {}

  append(_entry: object): number {
    const entries = (this.#entries.get(this.#newest) ?? 0) + 1;
    this.#entries.set(this.#newest, entries);
    const segment = this.#newest;
    if (entries >= ENTRIES_PER_SEGMENT) this.rotate();
    return segment;
  }

  writeOut(): void {}

  async sync(): Promise<void> {}

  hasRoom(): boolean {
    let entries = 0;
    for (const count of this.#entries.values()) entries += count;
    return entries < this.#maxEntries;
  }

  segments(): { readonly oldest: number; readonly newest: number } {
    return { oldest: Math.min(this.#newest, ...this.#entries.keys()), newest: this.#newest };
  }

  rotate(): void {
    if (this.#entries.has(this.#newest)) this.#newest += 1;
  }

  async release(below: number): Promise<void> {
    for (const segment of this.#entries.keys()) if (segment < below) this.#entries.delete(segment);
  }

  async close(): Promise<void> {}
}
