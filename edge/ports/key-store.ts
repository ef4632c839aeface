import type { ScopeLimits } from "./limits.ts";

/** A key as the store holds it: never its secret, only the SHA-256 of that. Plain JSON. */
export interface KeyRecord {
  /** Public id: what logs and the ledger may show. */
  readonly keyId: string;
  /** Hex. */
  readonly secretSha256: string;
  readonly account: string;
  readonly project: string;
  /** The highest band it may use: its own, else its project's, else null for any. */
  readonly highestBand: string | null;
  readonly keyLimits: ScopeLimits;
  readonly projectLimits: ScopeLimits;
  readonly accountLimits: ScopeLimits;
  /** Unix milliseconds. */
  readonly createdAtMs: number;
  readonly revokedAtMs: number | null;
}

export interface NewKey {
  readonly keyId: string;
  readonly secretSha256: string;
  readonly project: string;
  /** Null keeps the account of a project that exists and means `default` for a new one. */
  readonly account: string | null;
  readonly limits: ScopeLimits;
  readonly band: string | null;
  readonly createdAtMs: number;
}

export interface ProjectRecord {
  readonly project: string;
  readonly account: string;
  readonly limits: ScopeLimits;
  /** The highest band its keys may use where they say none; null for any. */
  readonly band: string | null;
  readonly createdAtMs: number;
}

export interface AccountRecord {
  readonly account: string;
  readonly limits: ScopeLimits;
  readonly createdAtMs: number;
}

/** Members that are not given stay as they are; null takes a limit away. */
export interface LimitsChange {
  readonly limits: Partial<ScopeLimits>;
  readonly band?: string | null;
}

/** A machine that may report. Only the SHA-256 of its enrolment token is kept. */
export interface HostRecord {
  readonly host: string;
  readonly tokenSha256: string;
  readonly enrolledAtMs: number;
  readonly revokedAtMs: number | null;
}

/** What an edge asks on behalf of a request. A rejection means that the store is away. */
export interface KeyStore {
  /** Null when there never was such a key; a revoked one is returned with the time of that. */
  findKey(keyId: string): Promise<KeyRecord | null>;
  findHostByToken(tokenSha256: string): Promise<HostRecord | null>;
  /** Grows whenever a key, a limit or a host is made, changed or revoked: cached verdicts of an older revision are void. */
  keyRevision(): Promise<number>;
}

/** What an operator's command asks. Rejects with StoreConflict when the request contradicts what is stored. */
export interface KeyAdministration {
  createKey(key: NewKey): Promise<KeyRecord>;
  listKeys(): Promise<readonly KeyRecord[]>;
  /** The changed record; null when there is no such key. The same for projects and accounts. */
  updateKey(keyId: string, change: LimitsChange): Promise<KeyRecord | null>;
  /** False when there is no such key; true also when it was revoked before. */
  revokeKey(keyId: string, atMs: number): Promise<boolean>;
  /** `account` as in `NewKey`. Rejects when there is such a project already. */
  createProject(project: Omit<ProjectRecord, "account"> & { readonly account: string | null }): Promise<ProjectRecord>;
  listProjects(): Promise<readonly ProjectRecord[]>;
  updateProject(project: string, change: LimitsChange): Promise<ProjectRecord | null>;
  createAccount(account: AccountRecord): Promise<AccountRecord>;
  listAccounts(): Promise<readonly AccountRecord[]>;
  updateAccount(account: string, change: Pick<LimitsChange, "limits">): Promise<AccountRecord | null>;
  /** Makes the host, or gives one that exists a new token; the old token ends at once. */
  enrollHost(host: string, tokenSha256: string, atMs: number): Promise<HostRecord>;
  listHosts(): Promise<readonly HostRecord[]>;
  revokeHost(host: string, atMs: number): Promise<boolean>;
}

/** The operator asked for something that contradicts what is stored; the message is meant for him. */
export class StoreConflict extends Error {
  constructor(message: string) {
    super(message);
    this.name = "StoreConflict";
  }
}
