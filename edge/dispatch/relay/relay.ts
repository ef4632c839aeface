import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ErrorCode } from "../../../shared/errors/registry.ts";
import { IGNORED_FIELDS_HEADER, STEERING_HEADER } from "../../../shared/protocol/headers.ts";
import { SseEventTooLarge } from "../../../shared/sse/parser.ts";
import { SSE_DONE } from "../../../shared/sse/writer.ts";
import type { Clock } from "../../../shared/time/clock.ts";
import type { ReplicaTarget } from "../../ports/coordinator.ts";
import type {
  Upstream,
  UpstreamExchange,
  UpstreamFailure,
  UpstreamHandler,
  UpstreamRequest,
} from "../../ports/upstream.ts";
import type { AnswerSink } from "./answer-sink.ts";
import { LazyTimer } from "./lazy-timer.ts";
import { refusalOf } from "./refusal.ts";
import type { RelayResult } from "./relay-result.ts";
import type { DispatchTimeouts } from "../settings.ts";
import { StreamTap } from "./stream-tap.ts";
import { UpstreamRefusal } from "./upstream-refusal.ts";
import { WholeTap } from "./whole-tap.ts";

/** After the end mark a backend may take this long to end its answer, so that the connection can be used again. */
const LINGER_MS = 1_000;

export interface RelayOptions {
  readonly clock: Clock;
  readonly answer: AnswerSink;
  readonly target: Pick<ReplicaTarget, "kind">;
  readonly isStream: boolean;
  readonly clientWantsUsage: boolean;
  readonly timeouts: DispatchTimeouts;
}

type Phase = "waiting" | "stream" | "whole" | "refusal" | "over";

/**
 * Couples one upstream exchange with the client's answer: bytes down with back-pressure, the client's leaving up in
 * the same tick, a tap for usage in between, and a time limit for every phase. One relay is one attempt.
 */
export class Relay implements UpstreamHandler {
  readonly #clock: Clock;
  readonly #answer: AnswerSink;
  readonly #options: RelayOptions;
  readonly #streamTap: StreamTap;
  readonly #wholeTap = new WholeTap();
  readonly #headTimer: LazyTimer;
  readonly #firstTokenTimer: LazyTimer;
  readonly #idleTimer: LazyTimer;
  readonly #stallTimer: LazyTimer;
  readonly #lingerTimer: LazyTimer;
  #exchange: UpstreamExchange | null = null;
  #resolve: (result: RelayResult) => void = () => undefined;
  #phase: Phase = "waiting";
  #refusal: UpstreamRefusal | null = null;
  #receipt: string | null = null;
  #firstTokenAtMs: number | null = null;
  #lastTokenAtMs: number | null = null;

  constructor(options: RelayOptions) {
    const { clock, isStream, clientWantsUsage } = options;
    this.#options = options;
    this.#clock = clock;
    this.#answer = options.answer;
    this.#streamTap = new StreamTap({ clientWantsUsage });
    this.#headTimer = new LazyTimer(clock, () =>
      this.#timedOut(isStream ? "response_header_timeout" : "generation_timeout"),
    );
    this.#firstTokenTimer = new LazyTimer(clock, () => this.#timedOut("first_token_timeout"));
    this.#idleTimer = new LazyTimer(clock, () => this.#timedOut("idle_timeout"));
    this.#stallTimer = new LazyTimer(clock, () => {
      this.#answer.drop();
      this.cancel();
    });
    this.#lingerTimer = new LazyTimer(clock, () => this.#exchange?.abort());
  }

  /** Sends the request. Resolves once, however it ends; never rejects. */
  run(upstream: Upstream, request: UpstreamRequest): Promise<RelayResult> {
    const { timeouts, isStream } = this.#options;
    return new Promise((resolve) => {
      this.#resolve = resolve;
      // A function written where a property gets it lives in V8's old generation, and all that it sees with it.
      const roomAgain = (): void => this.#roomAgain();
      this.#answer.onRoom = roomAgain;
      this.#headTimer.set(isStream ? timeouts.responseHeaderMs : timeouts.generationMs);
      if (isStream) this.#firstTokenTimer.set(timeouts.firstTokenMs);
      this.#exchange = upstream.open(request, this);
      if (this.#phase === "over") this.#exchange.abort();
    });
  }

  /** The client left. The upstream connection is closed before this returns. */
  cancel(): void {
    // What no connection has taken yet is nothing that a machine could account for.
    const nothingComputed = this.#exchange?.sent === false;
    this.#abort({ kind: "cancelled", claimResult: "cancelled", nothingComputed });
  }

  /** The time of the whole request is up. */
  expire(code: ErrorCode): void {
    this.#abort({
      kind: "failed",
      claimResult: "cancelled",
      expired: true,
      refusal: refusalOf(new ApiError(code)),
    });
  }

  onHeaders(status: number, headers: Readonly<Record<string, string>>): void {
    if (this.#phase !== "waiting") return;
    const isEventStream = (headers["content-type"] ?? "").includes("text/event-stream");
    if (status < 200 || status > 299) {
      this.#headTimer.stop();
      this.#firstTokenTimer.stop();
      this.#phase = "refusal";
      this.#refusal = new UpstreamRefusal(status, headers, this.#clock.nowMs());
      this.#idleTimer.set(this.#options.timeouts.idleMs);
      return;
    }
    const mismatch = isEventStream ? !this.#options.isStream : this.#answer.startedAs === "stream";
    // It was asked for none: neither could the usage be read, nor does the client know what it gets.
    const isEncoded = (headers["content-encoding"] ?? "identity") !== "identity";
    if (mismatch || isEncoded) {
      this.#fail("upstream_error");
      return;
    }
    this.#receipt = headers[STEERING_HEADER] ?? null;
    this.#answer.setHeaders(passedDown(headers));
    if (isEventStream) {
      this.#headTimer.stop();
      this.#phase = "stream";
      this.#answer.startStream();
    } else {
      this.#firstTokenTimer.stop();
      this.#phase = "whole";
      if (this.#options.isStream) {
        this.#headTimer.stop();
        this.#idleTimer.set(this.#options.timeouts.idleMs);
      }
      const length = headers["content-length"];
      this.#answer.startWhole(status, {
        "content-type": headers["content-type"] ?? "application/json",
        ...(length === undefined ? {} : { "content-length": length }),
      });
    }
  }

  onData(chunk: Uint8Array): boolean {
    switch (this.#phase) {
      case "stream":
        return this.#onStreamData(chunk);
      case "whole":
        return this.#onWholeData(chunk);
      case "refusal":
        if (this.#refusal?.push(chunk) === false) this.#refused();
        return true;
      case "waiting":
      case "over":
        return true;
      default:
        this.#phase satisfies never;
        return true;
    }
  }

  onEnd(): void {
    this.#lingerTimer.dispose();
    switch (this.#phase) {
      case "stream":
        this.#pass(() => this.#streamTap.close());
        if (this.#isOver()) return;
        if (this.#streamTap.end === null) this.#fail("upstream_truncated");
        return;
      case "whole": {
        const { usage, receipt } = this.#wholeTap.read();
        this.#finish({ kind: "completed", claimResult: "answered", usage, receipt: this.#receipt ?? receipt });
        return;
      }
      case "refusal":
        this.#refused();
        return;
      case "waiting":
        this.#fail("upstream_error");
        return;
      case "over":
        return;
      default:
        this.#phase satisfies never;
    }
  }

  onFailure(failure: UpstreamFailure, cause: unknown): void {
    this.#lingerTimer.dispose();
    const detail = `${failure}: ${reasonOf(cause)}`;
    switch (failure) {
      case "unreachable":
        this.#fail("upstream_unreachable", { unreached: true, retryable: true, nothingComputed: true, detail });
        return;
      case "dial_timeout":
        this.#fail("dial_timeout", { unreached: true, retryable: true, nothingComputed: true, detail });
        return;
      case "closed_before_headers":
        this.#fail("upstream_error", { retryable: true, detail });
        return;
      case "closed_in_body":
        if (this.#phase === "refusal") this.#refused();
        else this.#fail("upstream_truncated", { detail });
        return;
      default:
        failure satisfies never;
    }
  }

  #onStreamData(chunk: Uint8Array): boolean {
    const { tokenEvents, events } = this.#streamTap;
    const room = this.#pass(() => this.#streamTap.push(chunk));
    if (this.#isOver()) return true;
    if (this.#streamTap.tokenEvents > tokenEvents) {
      this.#lastTokenAtMs = this.#clock.monotonicMs();
      this.#firstTokenAtMs ??= this.#lastTokenAtMs;
      this.#firstTokenTimer.stop();
    }
    // Comments prove a connection, not progress: only events move the idle limit.
    if (room && this.#firstTokenAtMs !== null && this.#streamTap.events > events)
      this.#idleTimer.set(this.#options.timeouts.idleMs);
    return room;
  }

  #onWholeData(chunk: Uint8Array): boolean {
    this.#wholeTap.push(chunk);
    const room = this.#write(chunk);
    // Instead of the stream that was asked for; otherwise the limit on the generation goes on.
    if (room && this.#options.isStream) this.#idleTimer.set(this.#options.timeouts.idleMs);
    return room;
  }

  /** Lets the tap read, hands on what is left, and acts when the stream said how it ends. False: no room. */
  #pass(read: () => string): boolean {
    let out: string;
    try {
      out = read();
    } catch (thrown) {
      if (!(thrown instanceof SseEventTooLarge)) throw thrown;
      this.#fail("upstream_error");
      return true;
    }
    const room = out === "" || this.#write(out);
    const { end } = this.#streamTap;
    if (end === null) return room;
    if (end.kind === "error") {
      if (end.body === null) this.#fail("upstream_error");
      else
        this.#abort({
          kind: "failed",
          claimResult: "failed",
          refusal: { status: 502, body: end.body, retryAfterSeconds: null, source: "backend" },
        });
    } else if (!this.#streamTap.complete) {
      this.#fail("upstream_truncated");
    } else {
      this.#lingerTimer.set(LINGER_MS);
      this.#finish({ kind: "completed", claimResult: "answered", tail: SSE_DONE });
    }
    return true;
  }

  #write(chunk: Uint8Array | string): boolean {
    const room = this.#answer.write(chunk);
    if (!room) {
      this.#idleTimer.stop();
      this.#stallTimer.set(this.#options.timeouts.clientStallMs);
    }
    return room;
  }

  #roomAgain(): void {
    this.#stallTimer.stop();
    if (this.#phase === "over") return;
    const isUnasked = this.#phase === "whole" && this.#options.isStream;
    if (this.#firstTokenAtMs !== null || isUnasked) this.#idleTimer.set(this.#options.timeouts.idleMs);
    this.#exchange?.resume();
  }

  #refused(): void {
    const refusal = this.#refusal;
    if (refusal === null) return;
    this.#abort(refusal.result(this.#options.target.kind));
  }

  #timedOut(code: ErrorCode): void {
    this.#fail(code, { expired: code === "generation_timeout" });
  }

  #fail(code: ErrorCode, more: Partial<RelayResult> = {}): void {
    const source = code === "upstream_unreachable" || code === "dial_timeout" ? "edge" : "backend";
    this.#abort({
      kind: "failed",
      claimResult: "failed",
      refusal: refusalOf(new ApiError(code, { source })),
      ...more,
    });
  }

  #abort(result: Pick<RelayResult, "kind" | "claimResult"> & Partial<RelayResult>): void {
    if (this.#phase === "over") return;
    const answering = this.#isAnswering();
    this.#exchange?.abort();
    this.#finish({ answering, ...result, ...(answering ? { retryable: false } : {}) });
  }

  /** Type narrowing does not see that callbacks may have ended the relay. */
  #isOver(): boolean {
    return this.#phase === "over";
  }

  #isAnswering(): boolean {
    return this.#phase === "stream" || this.#phase === "whole";
  }

  #finish(result: Pick<RelayResult, "kind" | "claimResult"> & Partial<RelayResult>): void {
    if (this.#phase === "over") return;
    const answering = this.#isAnswering();
    this.#phase = "over";
    this.#headTimer.dispose();
    this.#firstTokenTimer.dispose();
    this.#idleTimer.dispose();
    this.#stallTimer.dispose();
    const resume = (): void => this.#exchange?.resume();
    this.#answer.onRoom = resume;
    const tap = this.#streamTap;
    this.#resolve({
      kind: result.kind,
      claimResult: result.claimResult,
      refusal: result.refusal ?? null,
      detail: result.detail ?? null,
      retryable: result.retryable ?? false,
      expired: result.expired ?? false,
      busyForMs: result.busyForMs ?? null,
      tail: result.tail ?? "",
      unreached: result.unreached ?? false,
      nothingComputed: result.nothingComputed ?? false,
      answering: result.answering ?? answering,
      usage: result.usage ?? tap.usage,
      tokenEvents: result.tokenEvents ?? tap.tokenEvents,
      receipt: result.receipt ?? tap.receipt ?? this.#receipt,
      firstTokenAtMs: this.#firstTokenAtMs,
      lastTokenAtMs: this.#lastTokenAtMs,
    });
  }
}

function reasonOf(cause: unknown): string {
  if (!(cause instanceof Error)) return "unknown";
  return "code" in cause && typeof cause.code === "string" ? cause.code : cause.message;
}

/** Of the backend's own headers only these are for callers. */
function passedDown(headers: Readonly<Record<string, string>>): Record<string, string> {
  const passed: Record<string, string> = {};
  for (const name of [STEERING_HEADER, IGNORED_FIELDS_HEADER]) {
    const value = headers[name];
    if (value !== undefined) passed[name] = value;
  }
  return passed;
}
