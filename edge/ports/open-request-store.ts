import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";
import type { OpenedRequest, StartedAttempt } from "./ledger.ts";

/** A request that runs at one of several edges, as far as another needs to know to settle it. Plain JSON. */
export interface OpenRequest {
  readonly opened: OpenedRequest;
  readonly attempts: readonly StartedAttempt[];
  /** What its limits hold for it at most; decimal text. */
  readonly reservedNanoUsd: string;
}

export interface ForeignReport {
  readonly host: string;
  readonly ended: readonly EndedRequest[];
  /** Each names the edge that it counts for. */
  readonly counters: readonly (HourCounter & { readonly edge: string })[];
  readonly atMs: number;
}

/** What lets one edge settle what another left open when it died. A rejection means that the store is away. */
export interface OpenRequestStore {
  /** Adds or replaces requests that run at `edge`, and takes away those that are settled. */
  noteOpenRequests(edge: string, open: readonly OpenRequest[], closed: readonly string[]): Promise<void>;
  /** Ids of what is noted for an edge: its former process may have left some. */
  openRequestIds(edge: string): Promise<readonly string[]>;
  /**
   * Takes a machine's report for edges whose lease has ended: settles their open requests, each exactly once whoever
   * asks and however often, and answers which of the entries nobody needs to hear of again.
   */
  adopt(report: ForeignReport): Promise<readonly { request_id: string; attempt: number }[]>;
  /**
   * Settles what edges left open of which no machine has told within `waitMs` after their lease ended, or none ever
   * will. Answers how many.
   */
  settleAbandoned(waitMs: number, atMs: number): Promise<number>;
}
