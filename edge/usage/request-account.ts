import type { AskedAttempt } from "../../shared/protocol/answer.ts";
import type { EndedRequest } from "../../shared/protocol/report.ts";
import type { Exactness, OpenedRequest, SettledRequest, StartedAttempt, TokenCounts } from "../ports/ledger.ts";
import type { AttemptRow, UsageRow } from "../ports/usage-store.ts";
import { costNanoUsd, NO_TOKENS } from "./cost.ts";

const HOUR_MS = 3_600_000;
/** Stands on an attempt that a host reported before the edge settled its request. It is billed to nobody yet. */
export const NOT_SETTLED = "not_settled";
/** Stands on an attempt that a host reported and this ledger never opened, such as after a lost journal. */
export const UNKNOWN_REQUEST = "unknown_request";

export interface ReportedAttempt {
  readonly host: string;
  readonly ended: EndedRequest;
  /** When the report came, by the edge's clock. */
  readonly atMs: number;
}

/** Everything the journal says of one request. */
export interface RequestAccount {
  readonly opened: OpenedRequest;
  readonly started: Map<number, StartedAttempt>;
  readonly reports: Map<number, ReportedAttempt>;
  settled: { readonly request: SettledRequest; readonly atMs: number } | null;
  /** When waiting for the machine's report was given up. */
  waitedAtMs: number | null;
}

export const hourOf = (atMs: number): number => Math.floor(atMs / HOUR_MS) * HOUR_MS;

export function countsOfReport(ended: EndedRequest): TokenCounts {
  return {
    promptTokens: ended.computed_prompt + ended.cached_prompt,
    cachedTokens: ended.cached_prompt,
    completionTokens: ended.computed_completion,
  };
}

/**
 * The billed row, or null while the request runs or waits for the machine's report. The machine's counts always win:
 * they are what its counters add up to. A report that comes after the row was written and says something else changes
 * the row in place and moves `settledAtMs`, so there stays one row a request, both sums of the proof stay equal, and
 * whoever took an export before finds the changed rows by `settled_at`.
 */
export function usageRowOf(account: RequestAccount): UsageRow | null {
  const { opened, settled } = account;
  if (settled === null) return null;
  const billed = settled.request.attempts.findLast((attempt) => attempt.unbilledReason === null);
  const report = billed === undefined ? undefined : account.reports.get(billed.attempt);
  if (billed?.awaitReport === true && report === undefined && account.waitedAtMs === null) return null;

  let counts = billed?.counts ?? NO_TOKENS;
  let exactness: Exactness = billed?.exactness ?? "exact";
  let settledAtMs = billed?.awaitReport === true ? Math.max(settled.atMs, account.waitedAtMs ?? 0) : settled.atMs;
  if (billed !== undefined && report !== undefined) {
    const reported = countsOfReport(report.ended);
    const isNews = !sameCounts(reported, counts) || report.ended.exactness !== exactness;
    if (isNews) settledAtMs = Math.max(settled.atMs, report.atMs);
    counts = reported;
    exactness = report.ended.exactness;
  }
  const last = billed ?? settled.request.attempts.at(-1);
  const { model, price, priceVersion } = (last && account.started.get(last.attempt)?.served) ?? opened;
  return {
    requestId: opened.requestId,
    clientRequestId: opened.clientRequestId,
    atMs: opened.atMs,
    settledAtMs,
    account: opened.account,
    project: opened.project,
    keyId: opened.keyId,
    model,
    backend: settled.request.backend,
    band: opened.band,
    promptTokens: counts.promptTokens,
    cachedTokens: counts.cachedTokens,
    completionTokens: counts.completionTokens,
    steeringHash: settled.request.steeringHash,
    outcome: settled.request.outcome,
    exactness,
    price,
    priceVersion,
    costNanoUsd: costNanoUsd(counts, price).toString(),
    queueMs: rounded(settled.request.queueMs),
    ttftMs: rounded(settled.request.ttftMs),
    tpotMs: settled.request.tpotMs === null ? null : Math.round(settled.request.tpotMs * 1_000) / 1_000,
    totalMs: Math.round(settled.request.totalMs),
  };
}

/** What the edge's own counts come to, which stand until a machine tells better. */
export function ownCostNanoUsd({ opened, started, settled }: RequestAccount): bigint {
  const last = settled?.request.attempts.at(-1);
  if (last === undefined || last.unbilledReason !== null) return 0n;
  return costNanoUsd(last.counts, (started.get(last.attempt)?.served ?? opened).price);
}

/** The rows of attempts that may be written now: those a host has reported, and all of them once the request is final. */
export function attemptRowsOf(account: RequestAccount, isFinal = usageRowOf(account) !== null): AttemptRow[] {
  const settledAttempts = isFinal ? (account.settled?.request.attempts ?? []) : [];
  const numbers = new Set([
    ...account.started.keys(),
    ...account.reports.keys(),
    ...settledAttempts.map((ended) => ended.attempt),
  ]);
  const rows: AttemptRow[] = [];
  for (const attempt of numbers) {
    const report = account.reports.get(attempt);
    if (report === undefined && !isFinal) continue;
    const started = account.started.get(attempt);
    const ended = settledAttempts.find((candidate) => candidate.attempt === attempt);
    const counts = ended?.counts ?? NO_TOKENS;
    const reason = ended === undefined ? (isFinal ? "retry" : NOT_SETTLED) : ended.unbilledReason;
    if (report !== undefined) {
      rows.push(reportedRow(report, reason));
    } else {
      rows.push({
        requestId: account.opened.requestId,
        attempt,
        backend: started?.backend ?? account.settled?.request.backend ?? "unknown",
        replica: started?.replica ?? "unknown",
        epoch: started?.epoch ?? null,
        endedHourMs: null,
        computedPrompt: counts.promptTokens - counts.cachedTokens,
        cachedPrompt: counts.cachedTokens,
        computedCompletion: counts.completionTokens,
        unbilledReason: reason,
        exactness: ended?.exactness ?? "estimated",
      });
    }
  }
  return rows;
}

export function reportedRow({ host, ended }: ReportedAttempt, unbilledReason: string | null): AttemptRow {
  return {
    requestId: ended.request_id,
    attempt: ended.attempt,
    backend: host,
    replica: ended.replica,
    epoch: ended.epoch,
    endedHourMs: hourOf(ended.ended_at),
    computedPrompt: ended.computed_prompt,
    cachedPrompt: ended.cached_prompt,
    computedCompletion: ended.computed_completion,
    unbilledReason,
    exactness: ended.exactness,
  };
}

/** Whether a host may still report an attempt of this request: its numbers are then only the edge's own. */
export function awaitsHost(account: RequestAccount): boolean {
  for (const [attempt, started] of account.started) {
    if (started.epoch !== null && !account.reports.has(attempt)) return true;
  }
  return false;
}

/** Attempts on this host that it has not reported. Endpoints report none. */
export function unreportedOf(account: RequestAccount, host: string): AskedAttempt[] {
  const unreported: AskedAttempt[] = [];
  for (const [attempt, { backend, epoch, replica }] of account.started) {
    if (backend !== host || epoch === null || account.reports.has(attempt)) continue;
    unreported.push({ request_id: account.opened.requestId, attempt, replica, epoch });
  }
  return unreported;
}

function sameCounts(one: TokenCounts, other: TokenCounts): boolean {
  return (
    one.promptTokens === other.promptTokens &&
    one.cachedTokens === other.cachedTokens &&
    one.completionTokens === other.completionTokens
  );
}

const rounded = (ms: number | null): number | null => (ms === null ? null : Math.round(ms));
