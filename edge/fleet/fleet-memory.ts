import type { Report } from "../../shared/protocol/report.ts";

/**
 * What outlives the edge's process: the last reports of its hosts, so that their models are known by name, and waited
 * for, before the hosts report to the new one.
 */
export interface FleetMemory {
  /** As an earlier life left it. */
  readonly known: readonly Report[];
  /** Called when something other than load changed, with the last report of every host. Never throws. */
  remember(reports: readonly Report[]): void;
}
