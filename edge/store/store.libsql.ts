import type { Client, InStatement, Transaction } from "@libsql/client";
import { eq } from "drizzle-orm";
import type { Clock } from "../../shared/time/clock.ts";
import type {
  AnswerBounds,
  AnswerClaim,
  AnswerKey,
  AnswerStore,
  ClaimDecision,
  KeptAnswer,
} from "../ports/answer-store.ts";
import type { EdgeIdentity, EdgeMember, EdgeStore, JoinAnswer, RenewAnswer } from "../ports/edge-store.ts";
import type {
  AccountRecord,
  HostRecord,
  KeyAdministration,
  KeyRecord,
  KeyStore,
  LimitsChange,
  NewKey,
  ProjectRecord,
} from "../ports/key-store.ts";
import type { ForeignReport, OpenRequest, OpenRequestStore } from "../ports/open-request-store.ts";
import type { SliceAnswer, SliceRequest, SliceStore } from "../ports/slice-store.ts";
import type {
  ProofRequest,
  ProofSnapshot,
  RollupStore,
  SpentByKey,
  SpentRequest,
  StoredPrice,
  StoredRequests,
  TimeRange,
  UsageBatch,
  UsageHour,
  UsagePageRequest,
  UsageRow,
  UsageStore,
} from "../ports/usage-store.ts";
import * as adoptionQueries from "./adoption-queries.ts";
import { databaseOver, type Connection, type Database } from "./database.ts";
import * as answerQueries from "./answer-queries.ts";
import * as edgeQueries from "./edge-queries.ts";
import * as keyQueries from "./key-queries.ts";
import { proofSnapshot, storedRequests } from "./proof-queries.ts";
import * as rollupQueries from "./rollup-queries.ts";
import * as scopeQueries from "./scope-queries.ts";
import { budgetSlices } from "./schema.ts";
import { formerOf, takeSlices } from "./slice-queries.ts";
import * as usageQueries from "./usage-queries.ts";

/** Everything that the edge and its commands keep in one database. */
export type Store = KeyStore &
  KeyAdministration &
  UsageStore &
  RollupStore &
  EdgeStore &
  OpenRequestStore &
  AnswerStore &
  SliceStore;

export interface LibsqlStoreOptions {
  readonly clock: Clock;
  /** Opens a client; called again after a failure, since a connection that failed once may be unusable. */
  readonly connect: () => Promise<Client>;
  /** A file has one connection, so all its calls take turns. */
  readonly isFile: boolean;
  /** How long a transaction is repeated while another process holds the database's lock. */
  readonly busyDeadlineMs?: number;
}

const BUSY_DEADLINE_MS = 15_000;
const BUSY_PAUSE_MS = 50;

/**
 * The store over a libSQL client of any kind. A transaction that meets a lock is rolled back as a whole, its connection
 * replaced, and repeated from the start; between the tries other calls have their turn.
 */
export class LibsqlStore implements Store {
  readonly #options: LibsqlStoreOptions;
  #client: Promise<Client> | null = null;
  #turn: Promise<unknown> = Promise.resolve();
  #closed = false;

  constructor(options: LibsqlStoreOptions) {
    this.#options = options;
  }

  findKey(keyId: string): Promise<KeyRecord | null> {
    return this.#read((database) => keyQueries.findKey(database, keyId));
  }

  findHostByToken(tokenSha256: string): Promise<HostRecord | null> {
    return this.#read((database) => keyQueries.findHostByToken(database, tokenSha256));
  }

  keyRevision(): Promise<number> {
    return this.#read((database) => keyQueries.keyRevision(database));
  }

  createKey(key: NewKey): Promise<KeyRecord> {
    return this.#transaction("write", (database) => keyQueries.createKey(database, key));
  }

  listKeys(): Promise<readonly KeyRecord[]> {
    return this.#read((database) => keyQueries.listKeys(database));
  }

  updateKey(keyId: string, change: LimitsChange): Promise<KeyRecord | null> {
    return this.#transaction("write", (database) => keyQueries.updateKey(database, keyId, change));
  }

  revokeKey(keyId: string, atMs: number): Promise<boolean> {
    return this.#transaction("write", (database) => keyQueries.revokeKey(database, keyId, atMs));
  }

  createProject(project: Omit<ProjectRecord, "account"> & { readonly account: string | null }): Promise<ProjectRecord> {
    return this.#transaction("write", (database) => scopeQueries.createProject(database, project));
  }

  listProjects(): Promise<readonly ProjectRecord[]> {
    return this.#read((database) => scopeQueries.listProjects(database));
  }

  updateProject(project: string, change: LimitsChange): Promise<ProjectRecord | null> {
    return this.#transaction("write", (database) => scopeQueries.updateProject(database, project, change));
  }

  createAccount(account: AccountRecord): Promise<AccountRecord> {
    return this.#transaction("write", (database) => scopeQueries.createAccount(database, account));
  }

  listAccounts(): Promise<readonly AccountRecord[]> {
    return this.#read((database) => scopeQueries.listAccounts(database));
  }

  updateAccount(account: string, change: Pick<LimitsChange, "limits">): Promise<AccountRecord | null> {
    return this.#transaction("write", (database) => scopeQueries.updateAccount(database, account, change));
  }

  enrollHost(host: string, tokenSha256: string, atMs: number): Promise<HostRecord> {
    return this.#transaction("write", (database) => keyQueries.enrollHost(database, host, tokenSha256, atMs));
  }

  listHosts(): Promise<readonly HostRecord[]> {
    return this.#read((database) => keyQueries.listHosts(database));
  }

  revokeHost(host: string, atMs: number): Promise<boolean> {
    return this.#transaction("write", (database) => keyQueries.revokeHost(database, host, atMs));
  }

  record(batch: UsageBatch): Promise<void> {
    return this.#transaction("write", (_, connection) => usageQueries.recordUsage(connection, batch));
  }

  usagePage(request: UsagePageRequest): Promise<readonly UsageRow[]> {
    return this.#read((database) => usageQueries.usagePage(database, request));
  }

  requests(requestIds: readonly string[]): Promise<StoredRequests> {
    return this.#transaction("read", (database) => storedRequests(database, requestIds));
  }

  proofSnapshot(request: ProofRequest): Promise<ProofSnapshot> {
    return this.#transaction("read", (database) => proofSnapshot(database, request));
  }

  spent(request: SpentRequest): Promise<readonly SpentByKey[]> {
    return this.#read((database) => rollupQueries.spent(database, request));
  }

  usageHours(range: TimeRange): Promise<readonly UsageHour[]> {
    return this.#read((database) => rollupQueries.usageHoursIn(database, range));
  }

  rollUp(range: TimeRange): Promise<number> {
    return this.#transaction("write", (database) => rollupQueries.rollUp(database, range));
  }

  priceVersion(prices: readonly StoredPrice[], atMs: number): Promise<number> {
    return this.#transaction("write", (database) => usageQueries.priceVersion(database, prices, atMs));
  }

  joinEdge(edge: EdgeIdentity, ttlMs: number): Promise<JoinAnswer> {
    return this.#transaction("write", (_, connection) => edgeQueries.joinEdge(connection, edge, ttlMs));
  }

  edges(): Promise<readonly EdgeMember[]> {
    return this.#read((database) => edgeQueries.listEdges(database));
  }

  renewEdge(edge: EdgeIdentity, term: { readonly ttlMs: number; readonly sharing: boolean }): Promise<RenewAnswer> {
    return this.#transaction("write", (database) => edgeQueries.renewEdge(database, edge, term));
  }

  leaveEdge(edge: EdgeIdentity): Promise<void> {
    return this.#transaction("write", (database) => edgeQueries.leaveEdge(database, edge));
  }

  takeSlices(request: SliceRequest): Promise<SliceAnswer> {
    return this.#transaction("write", (_, connection) => takeSlices(connection, request));
  }

  dropFormerSlices(edge: string): Promise<void> {
    return this.#transaction("write", async (database) => {
      await database.delete(budgetSlices).where(eq(budgetSlices.edge, formerOf(edge)));
    });
  }

  noteOpenRequests(edge: string, open: readonly OpenRequest[], closed: readonly string[]): Promise<void> {
    return this.#transaction("write", (database) => adoptionQueries.noteOpenRequests(database, edge, open, closed));
  }

  openRequestIds(edge: string): Promise<readonly string[]> {
    return this.#read((database) => adoptionQueries.openRequestIds(database, edge));
  }

  adopt(report: ForeignReport): Promise<readonly { request_id: string; attempt: number }[]> {
    return this.#transaction("write", (_, connection) => adoptionQueries.adopt(connection, report));
  }

  settleAbandoned(waitMs: number, atMs: number): Promise<number> {
    return this.#transaction("write", (_, connection) => adoptionQueries.settleAbandoned(connection, waitMs, atMs));
  }

  claimAnswer(claim: AnswerClaim, bounds: Pick<AnswerBounds, "maxKeys">): Promise<ClaimDecision> {
    return this.#repeat("write", async (client) =>
      answerQueries.claimDecision(await client.batch(answerQueries.claimStatements(claim, bounds), "write"), claim),
    );
  }

  keepAnswer(
    key: AnswerKey & { readonly holder: string },
    answer: KeptAnswer,
    term: Pick<AnswerBounds, "maxBytes"> & { readonly keepMs: number },
  ): Promise<void> {
    return this.#execute(answerQueries.keepStatement(key, answer, term));
  }

  dropClaim(key: AnswerKey & { readonly holder: string }): Promise<void> {
    return this.#execute(answerQueries.dropStatement(key));
  }

  renewClaims(holder: string, leaseMs: number): Promise<void> {
    return this.#execute(answerQueries.renewStatement(holder, leaseMs));
  }

  forgetAnswers(): Promise<void> {
    return this.#execute(answerQueries.forgetStatement);
  }

  /** Waits for what runs and closes the connection. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#turn;
    await this.#drop();
  }

  #execute(statement: InStatement): Promise<void> {
    return this.#repeat("write", async (client) => void (await client.execute(statement)));
  }

  #read<Result>(query: (database: Database) => Promise<Result>): Promise<Result> {
    return this.#repeat("read", async (client) => query(databaseOver(client)));
  }

  #transaction<Result>(
    mode: "read" | "write",
    work: (database: Database, connection: Connection) => Promise<Result>,
  ): Promise<Result> {
    return this.#repeat(mode, async (client) => {
      const transaction: Transaction = await client.transaction(mode);
      try {
        const result = await work(databaseOver(transaction), transaction);
        await transaction.commit();
        return result;
      } finally {
        // Rolls back what was not committed; does nothing after a commit.
        transaction.close();
      }
    });
  }

  async #repeat<Result>(mode: "read" | "write", work: (client: Client) => Promise<Result>): Promise<Result> {
    const { clock, busyDeadlineMs = BUSY_DEADLINE_MS } = this.#options;
    const giveUpAtMs = clock.monotonicMs() + busyDeadlineMs;
    for (;;) {
      try {
        // A file has one connection; at a server only one writer can have the lock, so ours do not fight for it.
        const takesTurns = this.#options.isFile || mode === "write";
        return await (takesTurns ? this.#inTurn(() => this.#once(work)) : this.#once(work));
      } catch (thrown) {
        const cause = causeOf(thrown);
        if (!isBusy(cause) || clock.monotonicMs() >= giveUpAtMs) throw cause;
      }
      await new Promise<void>((resolve) => clock.after(BUSY_PAUSE_MS, resolve));
    }
  }

  async #once<Result>(work: (client: Client) => Promise<Result>): Promise<Result> {
    if (this.#closed) throw new Error("the store is closed");
    this.#client ??= this.#options.connect();
    try {
      return await work(await this.#client);
    } catch (thrown) {
      if (this.#options.isFile && isOfDatabase(causeOf(thrown))) await this.#drop();
      throw thrown;
    }
  }

  #inTurn<Result>(work: () => Promise<Result>): Promise<Result> {
    const result = this.#turn.then(work);
    this.#turn = result.catch(() => null);
    return result;
  }

  async #drop(): Promise<void> {
    const client = this.#client;
    this.#client = null;
    try {
      (await client)?.close();
    } catch {
      // It could not be opened, or is broken: there is nothing left to close.
    }
  }
}

/** Drizzle wraps what the client throws, and puts the statement's values into the message: they stay here. */
function causeOf(thrown: unknown): unknown {
  return thrown instanceof Error &&
    thrown.name !== "StoreConflict" &&
    thrown.cause instanceof Error &&
    isWrapper(thrown)
    ? causeOf(thrown.cause)
    : thrown;
}

const isWrapper = (thrown: Error): boolean => !("code" in thrown);

function codeOf(thrown: unknown): string {
  return thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : "";
}

const isBusy = (thrown: unknown): boolean => /^SQLITE_(BUSY|LOCKED)/.test(codeOf(thrown));
/** Anything but our own refusals, such as StoreConflict, leaves the connection in doubt. */
const isOfDatabase = (thrown: unknown): boolean => codeOf(thrown) !== "" || thrown instanceof TypeError;
