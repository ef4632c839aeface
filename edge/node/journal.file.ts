import { closeSync, fdatasync, fstatSync, mkdirSync, openSync, statSync, writeSync } from "node:fs";
import { open, unlink } from "node:fs/promises";
import { promisify } from "node:util";
import type { Journal } from "../ports/journal.ts";
import { lockFolder } from "./folder-lock.ts";
import { readJournalFiles, readSegment, segmentFile, segmentsIn } from "./journal-files.ts";

export interface FileJournalOptions {
  readonly folder: string;
  /** New requests are refused when all segments together are larger. */
  readonly maxBytes?: number;
  /** A segment is ended when it is larger. */
  readonly segmentBytes?: number;
  /** Makes what was written to a file survive a power cut; `fdatasync` when not given. */
  readonly syncFile?: (fd: number) => Promise<void>;
}

const MAX_BYTES = 256 * 2 ** 20;
const SEGMENT_BYTES = 8 * 2 ** 20;

const fdatasyncOf = promisify(fdatasync);

/**
 * The journal in files `<folder>/<number>.ndjson`. Lines of one turn of the event loop go to the system in one
 * write at its end, which survives `kill -9`; `sync` makes them survive a power cut. When the disk refuses, the lines
 * stay in memory and are tried again with the next write.
 */
export class FileJournal implements Journal {
  readonly #folder: string;
  readonly #maxBytes: number;
  readonly #segmentBytes: number;
  readonly #unlock: () => void;
  readonly #bytes = new Map<number, number>();
  /** Ended segments that are not durable yet. */
  readonly #ended: number[] = [];
  #newest: number;
  #fd: number | null = null;
  #pending: string[] = [];
  /** What the disk refused, as it is to stand there. */
  #rest: Buffer = Buffer.alloc(0);
  #isScheduled = false;
  #isFolderNew = false;
  #failure: Error | null = null;
  /** The disk did not say that it has everything: what it lost may look as if it were there. */
  #isInDoubt = false;
  readonly #syncFile: (fd: number) => Promise<void>;

  private constructor(options: FileJournalOptions, segments: readonly number[], unlock: () => void) {
    this.#folder = options.folder;
    this.#maxBytes = options.maxBytes ?? MAX_BYTES;
    this.#segmentBytes = options.segmentBytes ?? SEGMENT_BYTES;
    this.#unlock = unlock;
    this.#syncFile = options.syncFile ?? fdatasyncOf;
    for (const segment of segments) this.#bytes.set(segment, statSync(segmentFile(options.folder, segment)).size);
    this.#newest = (segments.at(-1) ?? 0) + 1;
  }

  /** Takes the folder for this process. Rejects with OperatorError while another edge has it. */
  static async open(options: FileJournalOptions): Promise<FileJournal> {
    mkdirSync(options.folder, { recursive: true, mode: 0o700 });
    const unlock = await lockFolder(options.folder);
    return new FileJournal(options, await segmentsIn(options.folder), unlock);
  }

  replay(take: (entry: unknown, segment: number) => void): Promise<void> {
    return readJournalFiles(this.#folder, take);
  }

  read(segment: number, take: (entry: unknown) => void): Promise<void> {
    this.writeOut();
    return readSegment(this.#folder, segment, take);
  }

  append(entry: object): number {
    this.#pending.push(JSON.stringify(entry));
    if (!this.#isScheduled) {
      this.#isScheduled = true;
      setImmediate(() => this.writeOut());
    }
    return this.#newest;
  }

  writeOut(): void {
    this.#isScheduled = false;
    if (!this.#hasUnwritten()) return;
    let rest = this.#rest;
    if (this.#pending.length > 0) {
      const lines = Buffer.from(`${this.#pending.join("\n")}\n`);
      rest = rest.length === 0 ? lines : Buffer.concat([rest, lines]);
      this.#pending = [];
    }
    try {
      const fd = this.#open();
      while (rest.length > 0) {
        const written = writeSync(fd, rest);
        this.#bytes.set(this.#newest, (this.#bytes.get(this.#newest) ?? 0) + written);
        rest = rest.subarray(written);
      }
      this.#rest = rest;
      this.#failure = null;
    } catch (thrown) {
      this.#rest = rest;
      this.#failure = thrown instanceof Error ? thrown : new Error(String(thrown));
      return;
    }
    if ((this.#bytes.get(this.#newest) ?? 0) > this.#segmentBytes) this.rotate();
  }

  async sync(): Promise<void> {
    this.writeOut();
    if (this.#failure !== null) throw this.#failure;
    try {
      await this.#syncAll();
      this.#isInDoubt = false;
    } catch (thrown) {
      this.#isInDoubt = true;
      throw thrown;
    }
  }

  async #syncAll(): Promise<void> {
    // One at a time: what a disk that refuses leaves is taken up by the next sync.
    for (let fd = this.#ended.shift(); fd !== undefined; fd = this.#ended.shift()) {
      try {
        await this.#syncFile(fd);
      } finally {
        closeSync(fd);
      }
    }
    if (this.#fd !== null) await this.#syncFile(this.#fd);
    if (!this.#isFolderNew) return;
    // The name of a new segment must survive a power cut too.
    const folder = await open(this.#folder);
    try {
      await folder.sync();
    } finally {
      await folder.close();
    }
    this.#isFolderNew = false;
  }

  hasRoom(): boolean {
    if (this.#failure !== null || this.#isInDoubt) return false;
    let bytes = 0;
    for (const size of this.#bytes.values()) bytes += size;
    return bytes < this.#maxBytes;
  }

  segments(): { readonly oldest: number; readonly newest: number } {
    let oldest = this.#newest;
    for (const segment of this.#bytes.keys()) oldest = Math.min(oldest, segment);
    return { oldest, newest: this.#newest };
  }

  rotate(): void {
    this.writeOut();
    if (this.#fd === null || this.#hasUnwritten() || fstatSync(this.#fd).size === 0) return;
    this.#ended.push(this.#fd);
    this.#fd = null;
    this.#newest += 1;
  }

  async release(below: number): Promise<void> {
    for (const segment of this.#bytes.keys()) {
      if (segment >= below || segment === this.#newest) continue;
      await unlink(segmentFile(this.#folder, segment));
      this.#bytes.delete(segment);
    }
  }

  async close(): Promise<void> {
    try {
      await this.sync();
    } finally {
      if (this.#fd !== null) closeSync(this.#fd);
      this.#fd = null;
      this.#unlock();
    }
  }

  #hasUnwritten(): boolean {
    return this.#pending.length > 0 || this.#rest.length > 0;
  }

  #open(): number {
    if (this.#fd !== null) return this.#fd;
    this.#fd = openSync(segmentFile(this.#folder, this.#newest), "a", 0o600);
    this.#bytes.set(this.#newest, fstatSync(this.#fd).size);
    this.#isFolderNew = true;
    return this.#fd;
  }
}
