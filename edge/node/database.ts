import { access, mkdir, rename, rm } from "node:fs/promises";
import path from "node:path";
import type { Client } from "@libsql/client";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import {
  appliedMigrations,
  migrate,
  MigrationRefused,
  type Migration,
  pendingMigrations,
  type MigrationReport,
} from "../store/migrations.ts";
import type { LibsqlStore, Store } from "../store/store.libsql.ts";
import { connectFile, databaseFile } from "./database-file.ts";
import { readMigrations } from "./migration-files.ts";
import { OperatorError } from "./operator-error.ts";
import { WorkerStore } from "./store.worker.ts";

export interface OpenStoreOptions {
  /** `file:` and a path, or the URL of a libSQL server. */
  readonly databaseUrl: string;
  /** Of a server; never logged. */
  readonly authToken?: string | undefined;
  readonly clock: Clock;
  readonly logger: Logger;
  /** How long a server may take for one exchange; 20 s when not given. */
  readonly serverTimeoutMs?: number;
}

/** It says what it did, and nothing else. */
type MigrationOptions = Omit<OpenStoreOptions, "logger"> & { readonly logger: Pick<Logger, "info"> };

export type ClosableStore = Store & { close(): Promise<void> };

/** Migrations hold the lock for as long as they take, and there is nothing else to do meanwhile. */
const MIGRATION_LOCK_TIMEOUT_MS = 30_000;
/** A migration is one exchange, however large the database. */
const MIGRATION_SERVER_TIMEOUT_MS = 600_000;

/** `fetch` itself would wait minutes for a server that has stopped to answer, and news of revoked keys with it. */
const SERVER_TIMEOUT_MS = 20_000;

async function connectServer(options: Omit<OpenStoreOptions, "logger">): Promise<Client> {
  const { databaseUrl: url, authToken, serverTimeoutMs = SERVER_TIMEOUT_MS } = options;
  const { createClient } = await import("@libsql/client");
  return createClient({
    url,
    intMode: "bigint",
    ...(authToken === undefined ? {} : { authToken }),
    fetch: (request: Request) => fetch(request, { signal: AbortSignal.timeout(serverTimeoutMs) }),
  });
}

/** Migrates and opens the store of a running edge; an embedded file is worked on in a thread of its own. */
export async function openStore(options: OpenStoreOptions): Promise<ClosableStore> {
  const file = databaseFile(options.databaseUrl);
  if (file === null) return openCommandStore(options);
  const store = new WorkerStore({ file, logger: options.logger });
  try {
    await store.migrate(options.clock.nowMs());
  } catch (thrown) {
    await store.close();
    throw thrown;
  }
  return store;
}

/** Migrates and opens the store of a short command, in this thread. */
export async function openCommandStore(options: OpenStoreOptions): Promise<ClosableStore> {
  await migrateDatabase(options);
  return directStore(options);
}

export async function directStore(options: OpenStoreOptions): Promise<LibsqlStore> {
  const file = databaseFile(options.databaseUrl);
  // A serving edge on a file never needs it here, and its thread has it: megabytes of code that would lie idle.
  const { LibsqlStore: DirectStore } = await import("../store/store.libsql.ts");
  return new DirectStore({
    clock: options.clock,
    isFile: file !== null,
    connect: file === null ? () => connectServer(options) : () => connectFile(file),
  });
}

/** Brings the database to this program's version. Rejects with OperatorError when it cannot. */
export async function migrateDatabase(
  options: MigrationOptions,
  migrations?: readonly Migration[],
): Promise<MigrationReport> {
  const file = databaseFile(options.databaseUrl);
  let client: Client | null = null;
  try {
    if (file !== null) await mkdir(path.dirname(file), { recursive: true, mode: 0o700 });
    const opened =
      file === null
        ? await connectServer({ ...options, serverTimeoutMs: MIGRATION_SERVER_TIMEOUT_MS })
        : await connectFile(file, MIGRATION_LOCK_TIMEOUT_MS);
    client = opened;
    const report = await migrate(opened, migrations ?? (await readMigrations()), {
      nowMs: options.clock.nowMs(),
      backUp: async () => {
        if (file !== null) await backUp(opened, file, options);
      },
    });
    if (report.applied.length > 0) options.logger.info("the database was migrated", { to: report.applied.at(-1) });
    return report;
  } catch (thrown) {
    throw operatorErrorOf(thrown, file);
  } finally {
    client?.close();
  }
}

/** A whole copy beside the database, the write-ahead log included, whoever is writing. */
async function backUp(client: Client, file: string, { clock, logger }: MigrationOptions): Promise<void> {
  const stamp = new Date(clock.nowMs()).toISOString().replaceAll(/[-:]|\.\d+/g, "");
  const copy = `${file}.backup-${stamp}`;
  const unfinished = `${copy}.part`;
  await rm(unfinished, { force: true });
  await client.execute({ sql: "vacuum into ?", args: [unfinished] });
  await rename(unfinished, copy);
  logger.info("the database was copied before its migration", { copy: path.basename(copy) });
}

function operatorErrorOf(thrown: unknown, file: string | null): Error {
  const name = file === null ? "the database" : `the database ${file}`;
  if (thrown instanceof MigrationRefused) return new OperatorError(`${name} cannot be used: ${thrown.message}.`);
  const code = thrown instanceof Error && "code" in thrown && typeof thrown.code === "string" ? thrown.code : null;
  if (code === null) return thrown instanceof Error ? thrown : new Error(String(thrown));
  const reason =
    code === "SQLITE_BUSY"
      ? "another process holds its lock"
      : code === "SQLITE_NOTADB"
        ? "it is not an SQLite file"
        : code;
  return new OperatorError(`${name} cannot be opened: ${reason}.`);
}

/** Whether there is a database already: a command that only reads must not make an empty one. */
export async function databaseExists(databaseUrl: string): Promise<boolean> {
  const file = databaseFile(databaseUrl);
  if (file === null) return true;
  try {
    await access(file);
    return true;
  } catch {
    return false;
  }
}

/** Rejects with OperatorError unless the database has exactly this program's version. */
export async function assertCurrent(options: OpenStoreOptions): Promise<void> {
  const file = databaseFile(options.databaseUrl);
  let client: Client | null = null;
  try {
    client = file === null ? await connectServer(options) : await connectFile(file);
    const pending = pendingMigrations(await appliedMigrations(client), await readMigrations());
    if (pending.length > 0) {
      throw new MigrationRefused("it is older than this program; run 'steerage migrate' first");
    }
  } catch (thrown) {
    throw operatorErrorOf(thrown, file);
  } finally {
    client?.close();
  }
}
