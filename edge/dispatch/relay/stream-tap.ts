import { z } from "zod";
import { FINISH_REASONS } from "../../../shared/openai/chat.ts";
import { SseParser, type SseEvent } from "../../../shared/sse/parser.ts";
import { sseData } from "../../../shared/sse/writer.ts";
import type { TokenCounts } from "../../ports/ledger.ts";
import { errorBodyOf, parseJson, saysError } from "./refusal.ts";
import { readUsage } from "./usage-reader.ts";
import type { ErrorBody } from "../../../shared/errors/api-error.ts";

/** Longest event that is taken from a backend: one chunk with the activations of a long prompt fits. */
const MAX_EVENT_LENGTH = 16 * 2 ** 20;

const DONE = "[DONE]";

/**
 * Members for which a chunk must be read. Quotes inside strings are escaped in JSON, so text of the model never
 * matches; everything else is passed on unparsed.
 */
const NEEDS_READING = /"(?:error|steerage)"|"usage"\s*:\s*\{|"finish_reason"\s*:\s*"/;
const HAS_TOKEN = /"(?:content|text|reasoning_content|refusal|arguments|name)"\s*:\s*"(?!")/;

const chunkSchema = z.looseObject({
  choices: z.array(z.looseObject({ finish_reason: z.string().nullish() })).nullish(),
  usage: z.unknown().optional(),
  steerage: z.looseObject({ steering: z.string().nullish() }).nullish(),
});

/** How the stream came to its end, as far as its own words go. */
export type StreamEnd =
  | { readonly kind: "done" }
  /** An error event; nothing counts after it. Null when it had no error object that can be passed on. */
  | { readonly kind: "error"; readonly body: ErrorBody | null };

/**
 * Reads a stream of OpenAI chunks while it passes: re-frames it, drops what clients choke on or did not ask for, and
 * notes usage, receipt, finish and errors. Keeps nothing but those. Pure: bytes in, text out.
 */
export class StreamTap {
  readonly #clientWantsUsage: boolean;
  /** From the first byte on: whole answers need none. */
  #decoder: TextDecoder | null = null;
  readonly #parser = new SseParser({ maxEventLength: MAX_EVENT_LENGTH });
  #usage: TokenCounts | null = null;
  #receipt: string | null = null;
  #finished = false;
  #tokenEvents = 0;
  #events = 0;
  #end: StreamEnd | null = null;

  constructor(options: { readonly clientWantsUsage: boolean }) {
    this.#clientWantsUsage = options.clientWantsUsage;
  }

  get usage(): TokenCounts | null {
    return this.#usage;
  }

  get receipt(): string | null {
    return this.#receipt;
  }

  /** Chunks that carried text: at least that many tokens came. */
  get tokenEvents(): number {
    return this.#tokenEvents;
  }

  get events(): number {
    return this.#events;
  }

  get end(): StreamEnd | null {
    return this.#end;
  }

  /** Nothing is missing: a finish reason and the end mark were there. */
  get complete(): boolean {
    return this.#finished && this.#end?.kind === "done";
  }

  /** What the client gets for these bytes, without the end mark. Throws SseEventTooLarge. */
  push(bytes: Uint8Array): string {
    if (this.#end !== null) return "";
    this.#decoder ??= new TextDecoder("utf-8");
    return this.#take(this.#parser.push(this.#decoder.decode(bytes, { stream: true })));
  }

  /**
   * The bytes are over. An event that no blank line ended is not one and is dropped, but for the end mark, which some
   * servers write last without it.
   */
  close(): string {
    if (this.#end !== null) return "";
    const unended = this.#parser.push(`${this.#decoder?.decode() ?? ""}\n\n`);
    return this.#take(unended.filter(({ data }) => data.trim() === DONE));
  }

  #take(events: readonly SseEvent[]): string {
    let out = "";
    for (const event of events) {
      out += this.#takeOne(event);
      if (this.#end !== null) break;
    }
    return out;
  }

  #takeOne({ event, data }: SseEvent): string {
    const text = data.trim();
    if (text === "" || text.startsWith(":")) return "";
    this.#events++;
    if (text === DONE) {
      this.#end = { kind: "done" };
      return "";
    }
    // Words of a server or proxy that failed; a client would choke on what is no object (case C097).
    if (event === "error" || !text.startsWith("{")) {
      this.#end = { kind: "error", body: errorBodyOf(parseJson(text), null) };
      return "";
    }
    if (HAS_TOKEN.test(text)) this.#tokenEvents++;
    return NEEDS_READING.test(text) ? this.#read(text) : sseData(text);
  }

  #read(text: string): string {
    const value = parseJson(text);
    if (saysError(value)) {
      this.#end = { kind: "error", body: errorBodyOf(value, null) };
      return "";
    }
    const result = chunkSchema.safeParse(value);
    if (!result.success) return sseData(text);
    const chunk = result.data;
    if (typeof chunk.steerage?.steering === "string") this.#receipt = chunk.steerage.steering;
    for (const { finish_reason } of chunk.choices ?? []) {
      if (finish_reason === null || finish_reason === undefined) continue;
      if (!isFinishReason(finish_reason)) {
        // Clients take an unknown reason for a good end, which an abort by the machine is not (case C013).
        this.#end = { kind: "error", body: null };
        return "";
      }
      this.#finished = true;
    }
    const usage = readUsage(chunk.usage);
    if (usage === null) return sseData(text);
    this.#usage = usage;
    if (this.#clientWantsUsage) return sseData(text);
    const carriesMore = (chunk.choices ?? []).length > 0 || (chunk.steerage !== null && chunk.steerage !== undefined);
    if (!carriesMore) return "";
    const { usage: _notAskedFor, ...rest } = chunk;
    return sseData(JSON.stringify(rest));
  }
}

function isFinishReason(text: string): boolean {
  return FINISH_REASONS.some((reason) => reason === text);
}
