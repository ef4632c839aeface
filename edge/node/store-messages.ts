import type { LogFields } from "../../shared/logging/logger.ts";
import type { Store } from "../store/store.libsql.ts";

/** What may be asked of the thread that holds the database. */
export const STORE_METHODS = [
  "findKey",
  "findHostByToken",
  "keyRevision",
  "createKey",
  "listKeys",
  "updateKey",
  "revokeKey",
  "createProject",
  "listProjects",
  "updateProject",
  "createAccount",
  "listAccounts",
  "updateAccount",
  "enrollHost",
  "listHosts",
  "revokeHost",
  "record",
  "usagePage",
  "requests",
  "proofSnapshot",
  "spent",
  "usageHours",
  "rollUp",
  "priceVersion",
  "claimAnswer",
  "keepAnswer",
  "dropClaim",
  "renewClaims",
  "forgetAnswers",
  "joinEdge",
  "edges",
  "renewEdge",
  "leaveEdge",
  "noteOpenRequests",
  "openRequestIds",
  "takeSlices",
  "dropFormerSlices",
  "adopt",
  "settleAbandoned",
] as const satisfies readonly (keyof Store)[];
export type StoreMethod = (typeof STORE_METHODS)[number];

export interface StoreRequest {
  readonly id: number;
  readonly method: StoreMethod | "migrate" | "close";
  /** JSON of a list: a text crosses to a thread far cheaper than thousands of rows. */
  readonly args: string;
}

/** What the thread would have logged: it has no log of its own. */
export interface MigrationLine {
  readonly message: string;
  readonly fields: LogFields;
}

export type StoreResponse =
  | { readonly id: number; readonly ok: true; readonly value: unknown }
  | { readonly id: number; readonly ok: false; readonly name: string; readonly message: string };
