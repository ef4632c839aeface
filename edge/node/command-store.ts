import path from "node:path";
import { createLogger, type Logger } from "../../shared/logging/logger.ts";
import type { UsageBatch } from "../ports/usage-store.ts";
import { journalEntrySchema } from "../usage/journal-entry.ts";
import { LedgerBook } from "../usage/ledger-book.ts";
import { nodeClock } from "./clock.node.ts";
import {
  assertCurrent,
  databaseExists,
  directStore,
  openCommandStore,
  type ClosableStore,
  type OpenStoreOptions,
} from "./database.ts";
import { databaseFile } from "./database-file.ts";
import { JOURNAL_FOLDER, readJournalFiles } from "./journal-files.ts";
import type { LoadedConfig } from "./load-config.ts";
import { OperatorError } from "./operator-error.ts";

export function storeOptions(loaded: LoadedConfig, logger: Logger = commandLogger()): OpenStoreOptions {
  return {
    databaseUrl: loaded.databaseUrl,
    authToken: loaded.databaseAuthToken,
    clock: nodeClock,
    logger,
  };
}

/**
 * Runs a command's work on a store that is migrated before and closed after. A database that had to be made is told on
 * standard error: it may be that another one was meant.
 */
export async function withStore<Result>(
  loaded: LoadedConfig,
  work: (store: ClosableStore) => Promise<Result>,
): Promise<Result> {
  const isNew = !(await databaseExists(loaded.databaseUrl));
  const result = await using(openCommandStore(storeOptions(loaded)), work);
  const file = databaseFile(loaded.databaseUrl);
  if (isNew && file !== null) {
    process.stderr.write(`A new database was made at ${file}; --data or --config names another one.\n`);
  }
  return result;
}

/** The same for a command that only reads: it makes no database and changes none. */
export async function withExistingStore<Result>(
  loaded: LoadedConfig,
  work: (store: ClosableStore) => Promise<Result>,
): Promise<Result> {
  if (!(await databaseExists(loaded.databaseUrl))) {
    const file = databaseFile(loaded.databaseUrl) ?? loaded.databaseUrl;
    throw new OperatorError(`there is no database at ${file}; --data or --database-url name another one.`);
  }
  const options = storeOptions(loaded);
  await assertCurrent(options);
  return using(directStore(options), work);
}

/** What the journal in a data directory says, of an edge that runs or of one that is gone. Nothing is changed. */
export async function readJournalRows(dataDirectory: string): Promise<UsageBatch> {
  return (await readJournal(dataDirectory)).rows();
}

/** The same with what the database refused. */
export async function readJournal(dataDirectory: string): Promise<LedgerBook> {
  const book = new LedgerBook();
  await readJournalFiles(path.join(dataDirectory, JOURNAL_FOLDER), (line, segment) => {
    const entry = journalEntrySchema.safeParse(line);
    if (entry.success) book.apply(entry.data, segment);
  });
  return book;
}

/** Commands say what went wrong, on standard error; standard output is for their result. */
export function commandLogger(): Logger {
  return createLogger({
    level: "warn",
    format: "console",
    clock: nodeClock,
    write: (line) => void process.stderr.write(`${line}\n`),
  });
}

async function using<Result>(
  opening: Promise<ClosableStore>,
  work: (store: ClosableStore) => Promise<Result>,
): Promise<Result> {
  const store = await opening;
  try {
    return await work(store);
  } finally {
    await store.close();
  }
}
