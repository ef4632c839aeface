import type { EndedRequest } from "../../shared/protocol/report.ts";
import type { OpenRequest } from "../ports/open-request-store.ts";
import type { AttemptRow, UsageRow } from "../ports/usage-store.ts";
import { awaitsLastReport, orphanSettlement } from "./orphans.ts";
import { attemptRowsOf, usageRowOf, type RequestAccount } from "./request-account.ts";

export interface AdoptedRows {
  readonly usage: UsageRow;
  readonly attempts: readonly AttemptRow[];
}

/**
 * The rows of a request that a dead edge left open, by what a machine said of its last attempt; without a word of a
 * machine it failed, and nobody pays for what is not known. Null while the word about the last attempt may still come.
 */
export function adoptedRows(
  open: OpenRequest,
  report: { readonly host: string; readonly ended: EndedRequest } | null,
  how: { readonly atMs: number; readonly withoutReport: boolean },
): AdoptedRows | null {
  const account: RequestAccount = {
    opened: open.opened,
    started: new Map(open.attempts.map((attempt) => [attempt.attempt, attempt])),
    reports: new Map(report === null ? [] : [[report.ended.attempt, { ...report, atMs: how.atMs }]]),
    settled: null,
    waitedAtMs: null,
  };
  if (awaitsLastReport(account) && !how.withoutReport) return null;
  account.settled = { request: orphanSettlement(account), atMs: how.atMs };
  const usage = usageRowOf(account);
  return usage === null ? null : { usage, attempts: attemptRowsOf(account) };
}
