import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";

export type RequestOutcome = "completed" | "cancelled" | "failed" | "shed" | "expired";
export type Exactness = "exact" | "counted" | "estimated";

/** Micro-dollars per 1,000 tokens, which is nano-dollars per token. */
export interface Price {
  readonly promptPer1k: number;
  readonly cachedPer1k: number;
  readonly completionPer1k: number;
}

/** What is known of a request when it is let in; journaled before anything is sent to a machine. */
export interface OpenedRequest {
  readonly requestId: string;
  readonly clientRequestId: string | null;
  /** When it was received: Unix milliseconds. Periods close by it. */
  readonly atMs: number;
  readonly account: string;
  readonly project: string;
  readonly keyId: string;
  /** The model that the first attempt goes to, aliases resolved. */
  readonly model: string;
  readonly band: string;
  readonly price: Price;
  readonly priceVersion: number;
}

export interface StartedAttempt {
  readonly requestId: string;
  readonly attempt: number;
  readonly backend: string;
  readonly replica: string;
  /** Null for endpoints, which send no reports. */
  readonly epoch: number | null;
  /** Where it went to another model than the request was opened with: what it is billed as if it answers. */
  readonly served?: ServedAs | undefined;
}

/** A model that answers in another's stead, and its price. */
export interface ServedAs {
  readonly model: string;
  readonly price: Price;
  readonly priceVersion: number;
}

export interface TokenCounts {
  /** Cached ones included. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

/** How an attempt ended as the edge saw it. */
export interface EndedAttempt {
  readonly requestId: string;
  readonly attempt: number;
  readonly counts: TokenCounts;
  readonly exactness: Exactness;
  /** Whether this attempt's tokens are the caller's to pay; otherwise the class of what is not. */
  readonly unbilledReason: "retry" | "hedge" | "failed_before_first_token" | "draft" | null;
  /**
   * The edge has only its own count, and the machine's report will tell exactly: the row waits for it, for a while.
   */
  readonly awaitReport: boolean;
}

export interface SettledRequest {
  readonly requestId: string;
  readonly outcome: RequestOutcome;
  /** The attempts in order; the last is the one that answered, if any did. */
  readonly attempts: readonly EndedAttempt[];
  readonly backend: string | null;
  readonly steeringHash: string | null;
  readonly queueMs: number | null;
  readonly ttftMs: number | null;
  readonly tpotMs: number | null;
  readonly totalMs: number;
}

/** Called when the final counts of a request are known, by whichever way came first. */
export type OnSettled = (settled: {
  requestId: string;
  account: string;
  counts: TokenCounts;
  costNanoUsd: bigint;
}) => void;

/**
 * The request's money, journaled and idempotent by request id. Synchronous: a call returns when the line is in the
 * journal's buffer, never waiting for a disk or a database.
 */
export interface Ledger {
  /** Throws ApiError usage_journal_full. */
  open(request: OpenedRequest): void;
  attemptStarted(attempt: StartedAttempt): void;
  settle(request: SettledRequest): void;
  /** A request refused after the limits and before any machine: a row of zeros. */
  shed(request: OpenedRequest, totalMs: number): void;
  /** Ended requests and counters of a host; answers which of them are safely journaled. */
  acceptReport(
    host: string,
    ended: readonly EndedRequest[],
    counters: readonly HourCounter[],
  ): readonly { request_id: string; attempt: number }[];
  /** Attempts of this host whose report is overdue: it may never have seen them. */
  askedOf(host: string): readonly AskedAttempt[];
}
