import {
  closeSync,
  fdatasync,
  fsyncSync,
  mkdirSync,
  openSync,
  readFileSync,
  renameSync,
  truncateSync,
  writeSync,
} from "node:fs";
import path from "node:path";
import { z } from "zod";
import type { Logger } from "../../shared/logging/logger.ts";
import {
  type EndedRequest,
  endedRequestSchema,
  type HourCounter,
  hourCounterSchema,
} from "../../shared/protocol/report.ts";

const HOUR_MS = 3_600_000;
/** How long hour counters are kept, which is longer than any edge is expected to be away. */
const COUNTERS_KEPT_MS = 7 * 24 * HOUR_MS;

const ackSchema = z.object({ request_id: z.string(), attempt: z.int() });
const lineSchema = z.union([
  z.object({ ended: endedRequestSchema }),
  z.object({ ack: ackSchema }),
  z.object({ edge: z.string(), counter: hourCounterSchema }),
]);

export interface EndedStoreOptions {
  readonly file: string;
  readonly logger: Logger;
  /** Lines after which the file is written anew without what was acknowledged. */
  readonly compactAfterLines?: number;
}

/**
 * Ended requests until an edge has them safe, and the hour counters that prove they add up: one NDJSON file, appended
 * before anything is reported. A line reaches the kernel in the call that adds it, so killing the host loses nothing;
 * `sync` (once a second) bounds what a power cut can lose. A last line cut short is dropped.
 */
export class EndedStore {
  readonly #options: EndedStoreOptions;
  readonly #waiting = new Map<string, EndedRequest>();
  readonly #counters = new Map<string, { edge: string; counter: HourCounter }>();
  #descriptor: number;
  #lines = 0;
  #unsynced = false;
  /** The last write may have left half a line. */
  #torn = false;

  constructor(options: EndedStoreOptions) {
    this.#options = options;
    mkdirSync(path.dirname(options.file), { recursive: true, mode: 0o700 });
    this.#replay();
    this.#descriptor = openSync(options.file, "a", 0o600);
  }

  /** Adds an ended request; false when it is known already. Durable when the call returns. */
  add(entry: EndedRequest): boolean {
    if (this.#waiting.has(keyOf(entry))) return false;
    this.#append({ ended: entry });
    this.#apply(entry);
    return true;
  }

  /** Whether its edge is still to be told of it. */
  has(requestId: string, attempt: number): boolean {
    return this.#waiting.has(keyOf({ request_id: requestId, attempt }));
  }

  /** Forgets those that an edge has safe; `told` says whose entries it is told, and so may acknowledge. */
  acknowledge(
    acks: readonly { request_id: string; attempt: number }[],
    told: (edge: string) => boolean = () => true,
  ): void {
    for (const ack of acks) {
      const entry = this.#waiting.get(keyOf(ack));
      if (entry === undefined || !told(entry.edge)) continue;
      this.#waiting.delete(keyOf(ack));
      this.#append({ ack: { request_id: ack.request_id, attempt: ack.attempt } });
    }
    if (this.#lines <= (this.#options.compactAfterLines ?? 20_000)) return;
    try {
      this.#compact();
    } catch (error) {
      // The long file is as good as the short one; an edge that was reached must not look away for it.
      this.#options.logger.error("the ended requests cannot be written anew", { file: this.#options.file }, error);
    }
  }

  /** Unacknowledged requests, oldest first, of those edges for which `wanted` is true. */
  waiting(wanted: (edge: string) => boolean, limit: number): EndedRequest[] {
    const entries: EndedRequest[] = [];
    for (const entry of this.#waiting.values()) {
      if (entries.length === limit) break;
      if (wanted(entry.edge)) entries.push(entry);
    }
    return entries;
  }

  get waitingCount(): number {
    return this.#waiting.size;
  }

  counters(wanted: (edge: string) => boolean): HourCounter[] {
    return [...this.#counters.values()]
      .filter(({ edge }) => wanted(edge))
      .map(({ edge, counter }) => ({ ...counter, edge }));
  }

  /** Brings what was added to the disk itself. */
  async sync(): Promise<void> {
    if (!this.#unsynced) return;
    this.#unsynced = false;
    await new Promise<void>((resolve) => fdatasync(this.#descriptor, () => resolve()));
  }

  close(): void {
    fsyncSync(this.#descriptor);
    closeSync(this.#descriptor);
  }

  #append(line: z.infer<typeof lineSchema>): void {
    try {
      writeWhole(this.#descriptor, `${this.#torn ? "\n" : ""}${JSON.stringify(line)}\n`);
      this.#torn = false;
    } catch (error) {
      // A full disk must not stop the host: the entry is still reported from memory.
      this.#torn = true;
      this.#options.logger.error("the ended requests cannot be written", { file: this.#options.file }, error);
    }
    this.#lines++;
    this.#unsynced = true;
  }

  #apply(entry: EndedRequest): void {
    this.#waiting.set(keyOf(entry), entry);
    const hour = hourOf(entry);
    const key = `${entry.edge} ${entry.epoch} ${hour}`;
    const before = this.#counters.get(key)?.counter;
    this.#counters.set(key, {
      edge: entry.edge,
      counter: {
        epoch: entry.epoch,
        hour,
        requests: (before?.requests ?? 0) + 1,
        computed_prompt: (before?.computed_prompt ?? 0) + entry.computed_prompt,
        cached_prompt: (before?.cached_prompt ?? 0) + entry.cached_prompt,
        computed_completion: (before?.computed_completion ?? 0) + entry.computed_completion,
      },
    });
  }

  #replay(): void {
    const { file, logger } = this.#options;
    let text: string;
    try {
      text = readFileSync(file, "utf8");
    } catch {
      return;
    }
    const whole = text.lastIndexOf("\n") + 1;
    if (whole < text.length) {
      logger.warn("the last line of the ended requests was cut short and is dropped", { file });
      truncateSync(file, Buffer.byteLength(text.slice(0, whole)));
    }
    for (const line of text.slice(0, whole).split("\n")) {
      if (line === "") continue;
      const parsed = lineSchema.safeParse(parseJson(line));
      if (!parsed.success) {
        logger.error("a line of the ended requests cannot be read and is skipped", { file });
        continue;
      }
      this.#lines++;
      const record = parsed.data;
      if ("ended" in record) this.#apply(record.ended);
      else if ("ack" in record) this.#waiting.delete(keyOf(record.ack));
      else this.#counters.set(`${record.edge} ${record.counter.epoch} ${record.counter.hour}`, record);
    }
  }

  /**
   * A new file beside the old one, renamed over it when it is complete. Waiting requests are in the counters already,
   * so they are written before them: replaying counts the requests first and then sets the right sums.
   */
  #compact(): void {
    const { file } = this.#options;
    const newest = Math.max(0, ...[...this.#counters.values()].map(({ counter }) => counter.hour));
    const held = new Set([...this.#waiting.values()].map((entry) => hourOf(entry)));
    for (const [key, { counter }] of this.#counters)
      if (counter.hour < newest - COUNTERS_KEPT_MS && !held.has(counter.hour)) this.#counters.delete(key);
    const lines = [
      ...[...this.#waiting.values()].map((ended) => JSON.stringify({ ended })),
      ...[...this.#counters.values()].map((record) => JSON.stringify(record)),
    ];
    const draft = openSync(`${file}.new`, "w", 0o600);
    try {
      writeWhole(draft, lines.map((line) => `${line}\n`).join(""));
      fsyncSync(draft);
    } finally {
      closeSync(draft);
    }
    renameSync(`${file}.new`, file);
    closeSync(this.#descriptor);
    this.#descriptor = openSync(file, "a", 0o600);
    this.#lines = lines.length;
  }
}

/** One call may write a part only, as on a disk that is nearly full; what is missing then throws at the next. */
function writeWhole(descriptor: number, text: string): void {
  const bytes = Buffer.from(text);
  for (let done = 0; done < bytes.length;) done += writeSync(descriptor, bytes, done);
}

const hourOf = (entry: EndedRequest): number => Math.floor(entry.ended_at / HOUR_MS) * HOUR_MS;
const keyOf = (entry: { request_id: string; attempt: number }): string => `${entry.request_id}.${entry.attempt}`;

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}
