import type { Exactness, Price, RequestOutcome } from "./ledger.ts";

/** One row per request id: what is billed. Times are Unix milliseconds; plain JSON, money as decimal text. */
export interface UsageRow {
  readonly requestId: string;
  readonly clientRequestId: string | null;
  /** When it was received. Periods close by it. */
  readonly atMs: number;
  readonly settledAtMs: number;
  readonly account: string;
  readonly project: string;
  readonly keyId: string;
  readonly model: string;
  readonly backend: string | null;
  readonly band: string;
  /** Cached ones included. */
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
  readonly steeringHash: string | null;
  readonly outcome: RequestOutcome;
  readonly exactness: Exactness;
  readonly price: Price;
  readonly priceVersion: number;
  readonly costNanoUsd: string;
  readonly queueMs: number | null;
  readonly ttftMs: number | null;
  readonly tpotMs: number | null;
  readonly totalMs: number;
}

/** One row per attempt: what a machine computed, billed or not. */
export interface AttemptRow {
  readonly requestId: string;
  readonly attempt: number;
  readonly backend: string;
  readonly replica: string;
  /** Start of the host process; null for endpoints, which send no reports. */
  readonly epoch: number | null;
  /** Hour in which it ended by the host's report, Unix milliseconds; null until the host has reported it. */
  readonly endedHourMs: number | null;
  readonly computedPrompt: number;
  readonly cachedPrompt: number;
  readonly computedCompletion: number;
  /** Null when the caller pays for it. */
  readonly unbilledReason: string | null;
  readonly exactness: Exactness;
}

/** What one host computed for one edge in one hour, all attempts that had ended when it was told. It only grows. */
export interface HostCounterRow {
  readonly host: string;
  readonly edge: string;
  readonly epoch: number;
  readonly hourMs: number;
  readonly requests: number;
  readonly computedPrompt: number;
  readonly cachedPrompt: number;
  readonly computedCompletion: number;
}

/** A host's report of an attempt that the ledger no longer holds in memory: it corrects what is stored. */
export interface LateReport {
  readonly attempt: AttemptRow;
  readonly reportedAtMs: number;
}

/** Written in one transaction. A second time, or an older version after a newer one, changes nothing. */
export interface UsageBatch {
  readonly usage: readonly UsageRow[];
  readonly attempts: readonly AttemptRow[];
  readonly counters: readonly HostCounterRow[];
  readonly lateReports: readonly LateReport[];
}

/** Half open: from <= at < to, in Unix milliseconds; null is no bound. */
export interface TimeRange {
  readonly fromMs: number | null;
  readonly toMs: number | null;
}

export interface UsagePageRequest extends TimeRange {
  /** The last row of the page before, or null for the first. */
  readonly after: { readonly atMs: number; readonly requestId: string } | null;
  readonly limit: number;
}

export interface TokenSums {
  readonly rows: number;
  readonly promptTokens: number;
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

/** What is stored of some requests. */
export interface StoredRequests {
  readonly usageRows: readonly UsageRow[];
  readonly attemptRows: readonly AttemptRow[];
}

/**
 * Both sides of the ledger's proof, read at one instant; and the rows of the requests asked for, to be replaced by what
 * a journal knows better.
 */
export interface ProofSnapshot extends StoredRequests {
  /** Attempts that a host reported, by the hour of their end. */
  readonly attempts: readonly (TokenSums & {
    readonly host: string;
    readonly epoch: number;
    readonly hourMs: number;
  })[];
  readonly counters: readonly HostCounterRow[];
  /** By the hour of `at`. */
  readonly usage: readonly (TokenSums & { readonly hourMs: number; readonly costNanoUsd: string })[];
  /** Attempts without an unbilled reason, by the hour of their request's `at`. */
  readonly billedAttempts: readonly (TokenSums & { readonly hourMs: number })[];
  /** The hourly roll-ups of every row, whenever it was settled; and the rows they are derived from. */
  readonly rollups: readonly (TokenSums & { readonly hourMs: number; readonly costNanoUsd: string })[];
  readonly rolledUp: readonly (TokenSums & { readonly hourMs: number; readonly costNanoUsd: string })[];
  /** Billed attempts whose request has no row. */
  readonly billedWithoutUsage: number;
}

export interface ProofRequest extends TimeRange {
  /** Usage rows settled later stay out, with their attempts, so that a running edge does not disturb the proof. */
  readonly settledUpToMs: number;
  readonly requestIds: readonly string[];
}

export interface StoredPrice extends Price {
  /** Null is the default for models that are not named. */
  readonly model: string | null;
}

/** What a key has cost: in all, and since the beginning of the month and of the day. Nano-dollars, decimal text. */
export interface SpentByKey {
  readonly account: string;
  readonly project: string;
  readonly keyId: string;
  readonly totalNanoUsd: string;
  readonly monthNanoUsd: string;
  readonly dayNanoUsd: string;
}

export interface SpentRequest {
  /** Unix milliseconds: the first moments of the month and the day in UTC. */
  readonly monthStartMs: number;
  readonly dayStartMs: number;
  /** Null is every account. */
  readonly account: string | null;
}

/** Sums of usage rows by the hour of `at`. */
export interface UsageHour extends TokenSums {
  readonly account: string;
  readonly project: string;
  readonly keyId: string;
  readonly model: string;
  readonly hourMs: number;
  readonly costNanoUsd: string;
}

export interface UsageStore {
  record(batch: UsageBatch): Promise<void>;
  /** Ordered by (at, request id). */
  usagePage(request: UsagePageRequest): Promise<readonly UsageRow[]>;
  requests(requestIds: readonly string[]): Promise<StoredRequests>;
  proofSnapshot(request: ProofRequest): Promise<ProofSnapshot>;
  /** What every key has cost so far, from the hourly roll-ups: budgets outlive a restart by it. */
  spent(request: SpentRequest): Promise<readonly SpentByKey[]>;
  /** The version number of this price list; one that differs from the newest gets the next number. */
  priceVersion(prices: readonly StoredPrice[], atMs: number): Promise<number>;
}

/** The hourly roll-ups, which follow every change of a usage row in its own transaction. */
export interface RollupStore {
  /** As they stand, ordered by hour. */
  usageHours(range: TimeRange): Promise<readonly UsageHour[]>;
  /** Derives those of a period of whole hours from the usage rows again; answers how many were wrong. */
  rollUp(range: TimeRange): Promise<number>;
}
