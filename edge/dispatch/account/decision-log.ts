import type { GrantReason, Pressure } from "../../ports/coordinator.ts";
import type { RequestOutcome } from "../../ports/ledger.ts";
import { TextHash } from "../../routing/hash.ts";
import type { MadeAttempt } from "../attempts/made-attempt.ts";

/** One attempt of a request and what decided where it went. */
export interface DecidedAttempt {
  /** From 1. */
  readonly attempt: number;
  readonly model: string;
  readonly replica: string;
  /** `lost_race`: another machine was faster to begin. */
  readonly end: "answered" | "failed" | "cancelled" | "lost_race";
  /** How it failed, or null. */
  readonly failure: string | null;
  readonly why: GrantReason | null;
}

/** What was decided for one request, for its owner and for operators. Holds no text of it. */
export interface RequestDecision {
  readonly requestId: string;
  readonly project: string;
  /** When it was received, Unix milliseconds. */
  readonly atMs: number;
  readonly askedModel: string;
  /** The one that answered, or was asked last. */
  readonly model: string;
  readonly band: string;
  /** Null when it never waited for a machine. */
  readonly queueMs: number | null;
  readonly ttftMs: number | null;
  readonly totalMs: number;
  readonly outcome: RequestOutcome;
  /** The code of what the client was told instead of an answer. */
  readonly refusal: string | null;
  /** How things stood when a pool refused it; null when none did. */
  readonly refusedUnder: Pressure | null;
  readonly attempts: readonly DecidedAttempt[];
}

export function decidedAttempt({ attempt, link, target, result, why, lostRace }: MadeAttempt): DecidedAttempt {
  const ends = { completed: "answered", failed: "failed", cancelled: "cancelled" } as const;
  return {
    attempt,
    model: link.model.id,
    replica: target.key,
    end: lostRace ? "lost_race" : ends[result.kind],
    failure: result.kind === "failed" ? (result.refusal?.body.error.code ?? "failed") : null,
    why,
  };
}

const KEPT_MS = 3_600_000;
const MAX_KEPT = 10_000;
/** Of text, in one piece of memory; about a hundred decisions. */
const PIECE_BYTES = 64 * 1_024;
/** In UTF-8, a UTF-16 unit takes at most so many. */
const BYTES_PER_UNIT = 3;

type Piece = Uint8Array<ArrayBuffer>;

/**
 * The decisions of the last hour, as many as fit, as text outside the heap: thousands of small objects that all live
 * long and then die together cost the collector more than everything else that a request leaves behind.
 */
export class DecisionLog {
  readonly #hashes = new Uint32Array(MAX_KEPT);
  readonly #atMs = new Float64Array(MAX_KEPT);
  readonly #starts = new Uint32Array(MAX_KEPT);
  readonly #lengths = new Uint32Array(MAX_KEPT);
  readonly #pieces = Array.from<unknown, Piece>({ length: MAX_KEPT }, () => NOTHING);
  /** Place in the rings of the oldest, and how many follow from there. */
  #oldest = 0;
  #count = 0;
  #piece = NOTHING;
  #usedBytes = 0;
  /** One that nothing stands in any more. */
  #spare = NOTHING;

  add(decision: RequestDecision, nowMs: number): void {
    const text = JSON.stringify(decision);
    if (this.#count === MAX_KEPT) this.#dropOldest();
    if (this.#piece.length - this.#usedBytes < text.length * BYTES_PER_UNIT)
      this.#takePiece(text.length * BYTES_PER_UNIT);
    const { written } = ENCODER.encodeInto(text, this.#piece.subarray(this.#usedBytes));
    const place = (this.#oldest + this.#count) % MAX_KEPT;
    this.#hashes[place] = hashOf(decision.requestId);
    this.#atMs[place] = nowMs;
    this.#starts[place] = this.#usedBytes;
    this.#lengths[place] = written;
    this.#pieces[place] = this.#piece;
    this.#usedBytes += written;
    this.#count++;
    while (nowMs - (this.#atMs[this.#oldest] ?? nowMs) > KEPT_MS) this.#dropOldest();
  }

  /** Null when it is not known, too old, or another project's. */
  find(requestId: string, project: string, nowMs: number): RequestDecision | null {
    const hash = hashOf(requestId);
    for (const place of this.#newestFirst(nowMs)) {
      if (this.#hashes[place] !== hash) continue;
      const decision = this.#read(place);
      if (decision.requestId === requestId) return decision.project === project ? decision : null;
    }
    return null;
  }

  /** The latest of all projects, the newest first. For operators. */
  latest(count: number, nowMs: number): readonly RequestDecision[] {
    const found: RequestDecision[] = [];
    for (const place of this.#newestFirst(nowMs)) {
      if (found.length === count) break;
      found.push(this.#read(place));
    }
    return found;
  }

  *#newestFirst(nowMs: number): Iterable<number> {
    for (let back = this.#count - 1; back >= 0; back--) {
      const place = (this.#oldest + back) % MAX_KEPT;
      if (nowMs - (this.#atMs[place] ?? 0) > KEPT_MS) return;
      yield place;
    }
  }

  #read(place: number): RequestDecision {
    const start = this.#starts[place] ?? 0;
    const bytes = this.#pieces[place]?.subarray(start, start + (this.#lengths[place] ?? 0));
    // oxlint-disable-next-line typescript/no-unsafe-type-assertion -- what `add` wrote
    return JSON.parse(DECODER.decode(bytes)) as RequestDecision;
  }

  #takePiece(leastBytes: number): void {
    const isSpareEnough = this.#spare.length >= leastBytes;
    this.#piece = isSpareEnough ? this.#spare : new Uint8Array(Math.max(PIECE_BYTES, leastBytes));
    if (isSpareEnough) this.#spare = NOTHING;
    this.#usedBytes = 0;
  }

  #dropOldest(): void {
    const piece = this.#pieces[this.#oldest] ?? NOTHING;
    this.#pieces[this.#oldest] = NOTHING;
    this.#oldest = (this.#oldest + 1) % MAX_KEPT;
    this.#count--;
    const isLastOfPiece = piece !== this.#piece && piece !== this.#pieces[this.#oldest];
    if (isLastOfPiece && piece.length === PIECE_BYTES) this.#spare = piece;
  }
}

const NOTHING: Piece = new Uint8Array();
const ENCODER = new TextEncoder();
const DECODER = new TextDecoder();

const hashOf = (requestId: string): number => new TextHash().update(requestId).value() >>> 0;
