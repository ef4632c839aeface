import type { SettledRequest, StartedAttempt } from "../ports/ledger.ts";
import { NO_TOKENS } from "./cost.ts";
import type { ReportedAttempt, RequestAccount } from "./request-account.ts";

/** The attempt that may have answered a request whose edge died, and what its machine said of it. */
export function lastAttemptOf(account: RequestAccount): {
  readonly attempt: StartedAttempt | undefined;
  readonly report: ReportedAttempt | undefined;
} {
  const attempt = [...account.started.values()].at(-1);
  return { attempt, report: attempt === undefined ? undefined : account.reports.get(attempt.attempt) };
}

/** Whether a machine may still tell what it computed for it: endpoints never do. */
export function awaitsLastReport(account: RequestAccount): boolean {
  const { attempt, report } = lastAttemptOf(account);
  return attempt !== undefined && attempt.epoch !== null && report === undefined;
}

/** How a request ends that its edge left open when it died: as its machine said, or as failed. */
export function orphanSettlement(account: RequestAccount): SettledRequest {
  const { opened, started } = account;
  const { attempt: last, report } = lastAttemptOf(account);
  return {
    requestId: opened.requestId,
    outcome: report === undefined || report.ended.outcome === "failed" ? "failed" : "cancelled",
    // An attempt before the last one was given up by the edge that died: nobody pays for it.
    attempts: [...started.keys()].map((attempt) => ({
      requestId: opened.requestId,
      attempt,
      counts: NO_TOKENS,
      exactness: "estimated",
      unbilledReason: attempt === last?.attempt ? null : "retry",
      awaitReport: false,
    })),
    backend: last?.backend ?? null,
    steeringHash: null,
    queueMs: null,
    ttftMs: null,
    tpotMs: null,
    totalMs: Math.max(0, (report?.ended.ended_at ?? opened.atMs) - opened.atMs),
  };
}
