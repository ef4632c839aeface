import type { Journal } from "../../edge/ports/journal.ts";

export interface JournalLine {
  readonly text: string;
  readonly segment: number;
}

/** A journal whose lines another ledger can take over, as after a crash. */
export class KeptJournal implements Journal {
  readonly lines: JournalLine[] = [];
  readonly former: readonly JournalLine[];
  room = true;
  syncFailure: Error | null = null;
  writeOuts = 0;
  #segments = { oldest: 1, newest: 1 };

  constructor(former: readonly JournalLine[] = []) {
    this.former = former;
    this.lines.push(...former);
    const newest = (former.at(-1)?.segment ?? 0) + 1;
    this.#segments = { oldest: former[0]?.segment ?? newest, newest };
  }

  async replay(take: (entry: unknown, segment: number) => void): Promise<void> {
    for (const { text, segment } of this.former) take(JSON.parse(text), segment);
  }
  async read(segment: number, take: (entry: unknown) => void): Promise<void> {
    for (const line of this.lines.filter((one) => one.segment === segment)) take(JSON.parse(line.text));
  }
  append(entry: object): number {
    this.lines.push({ text: JSON.stringify(entry), segment: this.#segments.newest });
    return this.#segments.newest;
  }
  writeOut(): void {
    this.writeOuts += 1;
  }
  async sync(): Promise<void> {
    if (this.syncFailure !== null) throw this.syncFailure;
  }
  hasRoom(): boolean {
    return this.room;
  }
  segments(): { oldest: number; newest: number } {
    return this.#segments;
  }
  rotate(): void {
    if (this.lines.some(({ segment }) => segment === this.#segments.newest)) {
      this.#segments = { ...this.#segments, newest: this.#segments.newest + 1 };
    }
  }
  async release(below: number): Promise<void> {
    const kept = this.lines.filter(({ segment }) => segment >= below);
    this.lines.splice(0, this.lines.length, ...kept);
    this.#segments = { ...this.#segments, oldest: below };
  }
  async close(): Promise<void> {}
}
