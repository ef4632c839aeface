import type { Answer } from "../../shared/protocol/answer.ts";
import type { AttachedSae, Report, ReportedProfile, SpeculationCounts } from "../../shared/protocol/report.ts";

/** One model as callers may see it, from all its replicas together. */
export interface ServedModel {
  readonly id: string;
  readonly pool: string;
  readonly aliases: readonly string[];
  readonly description: string | null;
  /** The shortest of its replicas'. */
  readonly contextLength: number | null;
  /** The longest, for what money must be bound by; null where one of them does not tell. Absent: they are alike. */
  readonly longestContext?: number | null;
  readonly maxOutput: number | null;
  readonly capabilities: readonly string[];
  /** Held by at least one replica that is ready. */
  readonly saes: readonly AttachedSae[];
  /** Named steerings of replicas that are ready, with the SAEs they need. */
  readonly profiles?: readonly ReportedProfile[];
  /** Of hosts that are silent none counts. */
  readonly readyReplicas: number;
  /** Why, in words for callers, where every replica of it has failed; null otherwise. */
  readonly failure: string | null;
  /** Of what requests may need beyond their route, such as `tools`, what none of its replicas has. */
  readonly lacks?: readonly string[];
  /** Models that answer in its stead when it cannot, in this order. */
  readonly fallbacks?: readonly string[];
  /** Unix milliseconds of the first time it was seen. */
  readonly sinceMs: number;
}

export interface HostState {
  readonly host: string;
  readonly epoch: number;
  readonly lastReportAtMs: number;
  readonly draining: boolean;
  /** Answers that it did not use, since its start. */
  readonly answersRefused?: number;
  readonly replicas: readonly {
    readonly id: string;
    readonly model: string;
    readonly state: string;
    readonly reason: string | null;
    /** Where its engine guesses tokens. */
    readonly speculation?: SpeculationCounts;
  }[];
}

/** What a host is to hold; which edge may tell it so is decided by the placement lease. */
export type DesiredState = Omit<NonNullable<Answer["desired"]>, "lease_number">;

export type AcceptedReport = Pick<Answer, "ack_seq" | "report_every_ms"> & { readonly desired: DesiredState | null };

/** Owner of reports, host states and what is served where. Pushes pool digests to the Coordinator on change. */
export interface Fleet {
  /** Takes a report that was authenticated; an older (epoch, seq) is dropped but still answered. */
  accept(report: Report): Promise<AcceptedReport>;
  models(): Promise<readonly ServedModel[]>;
  /** By id or alias; null when nothing serves it. */
  resolve(name: string): Promise<ServedModel | null>;
  /**
   * No connection to this host could be made. It gets no work until it reports again, or for a while; resolves when
   * its pools were told. False where nothing was taken out: the host is unknown or its process is another by now.
   */
  unreachable(host: string, epoch: number | null): Promise<boolean>;
  hosts(): Promise<readonly HostState[]>;
  /** It has just started, serves nothing and heard of no host yet: what it does not know may well exist. */
  settling(): Promise<boolean>;
}
