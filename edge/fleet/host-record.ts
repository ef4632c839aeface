import type { Report, ReplicaReport } from "../../shared/protocol/report.ts";
import type { HostState } from "../ports/fleet.ts";
import type { ReplicaDigest } from "../ports/coordinator.ts";
import type { ModelNote } from "./settings.ts";

/** The newest report of one host and when it came, by our wall clock. */
export interface HostRecord {
  readonly report: Report;
  readonly receivedAtMs: number;
}

/** Reports are ordered by process start, then by number within the process. */
export function isNewer(report: Report, than: HostRecord | undefined): boolean {
  if (than === undefined) return true;
  const { epoch, seq } = than.report;
  return report.epoch > epoch || (report.epoch === epoch && report.seq > seq);
}

export function hostState({ report, receivedAtMs }: HostRecord): HostState {
  return {
    host: report.host,
    epoch: report.epoch,
    lastReportAtMs: receivedAtMs,
    draining: report.draining,
    ...(report.answers_refused === undefined ? {} : { answersRefused: report.answers_refused }),
    replicas: report.replicas.map(({ id, model, state, reason, speculation }) => ({
      id,
      model,
      state,
      reason: reason ?? null,
      ...(speculation === undefined ? {} : { speculation }),
    })),
  };
}

export interface DigestContext {
  /** This edge's name in `in_flight_by_edge`. */
  readonly edge: string;
  /** Nothing can be sent to the host: it is lost, cannot be connected to, or is only remembered. */
  readonly away: boolean;
  readonly note: ModelNote | undefined;
}

export function replicaDigest(
  { report, receivedAtMs }: HostRecord,
  replica: ReplicaReport,
  { edge, away, note }: DigestContext,
): ReplicaDigest {
  return {
    target: {
      key: `${report.host}/${replica.id}`,
      kind: "host",
      backend: report.host,
      replicaId: replica.id,
      url: report.url,
      model: replica.model,
      epoch: report.epoch,
    },
    ready: replica.state === "ready" && !away,
    draining: report.draining || replica.state === "draining",
    slots: replica.slots,
    reportedInFlight: replica.in_flight,
    reportedInFlightOfThisEdge: replica.in_flight_by_edge[edge] ?? 0,
    waiting: replica.waiting,
    reportedAtMs: receivedAtMs,
    freeKvCells: replica.free_kv_cells,
    totalKvCells: replica.total_kv_cells,
    // 0 says nothing.
    contextLength: replica.context_length || null,
    // Of a replica that takes everything nothing need be said.
    capabilities:
      replica.capabilities.length === 0 ? [] : [...new Set([...replica.capabilities, ...(note?.can ?? [])])],
    lacks: note?.lacks ?? [],
    saes: replica.saes.map(({ id }) => id),
    weight: 1,
    priority: 0,
  };
}
