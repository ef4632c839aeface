import type { Client } from "@libsql/client";

/** One file of `migrations/`. */
export interface Migration {
  /** Its place in the order, from 0. */
  readonly position: number;
  readonly tag: string;
  readonly statements: readonly string[];
}

/** The database cannot be brought to this program's version; the message is meant for the operator. */
export class MigrationRefused extends Error {
  constructor(message: string, options?: { cause: unknown }) {
    super(message, options);
    this.name = "MigrationRefused";
  }
}

export interface MigrationReport {
  /** Tags, in order; empty when there was nothing to do. */
  readonly applied: readonly string[];
  /** Whether the database held something before. */
  readonly wasEmpty: boolean;
}

const CREATE_LOG =
  "create table if not exists steerage_migrations (position integer primary key, tag text not null, applied_at integer not null)";

/**
 * What is still to be applied. Refuses a database that a newer program has changed, and one whose history is another.
 */
export function pendingMigrations(
  applied: readonly { readonly position: number; readonly tag: string }[],
  available: readonly Migration[],
): Migration[] {
  for (const { position, tag } of applied) {
    const known = available.find((migration) => migration.position === position);
    if (known === undefined) {
      throw new MigrationRefused(
        `the database is newer than this program: it has migration '${tag}', which this version does not know. ` +
          "Start the newer version, or restore the backup that was made before it",
      );
    }
    if (known.tag !== tag) {
      throw new MigrationRefused(`the database has migration '${tag}' where this program has '${known.tag}'`);
    }
  }
  const done = new Set(applied.map(({ position }) => position));
  return available.filter(({ position }) => !done.has(position));
}

/**
 * Brings a database up to date, each migration exactly once whoever else tries at the same time. `backUp` runs before
 * anything is changed, and only when there is something to lose. On a file the client must have one connection only,
 * because foreign keys are switched off on it before the transaction begins: inside one, that would do nothing.
 */
export async function migrate(
  client: Client,
  available: readonly Migration[],
  options: { readonly nowMs: number; readonly backUp: () => Promise<void> },
): Promise<MigrationReport> {
  const applied = await appliedMigrations(client);
  const wasEmpty = applied.length === 0;
  if (pendingMigrations(applied, available).length === 0) return { applied: [], wasEmpty };
  if (!wasEmpty) await options.backUp();
  return client.protocol === "file"
    ? { applied: await migrateFile(client, available, options.nowMs), wasEmpty }
    : { applied: await migrateServer(client, pendingMigrations(applied, available), options.nowMs), wasEmpty };
}

export async function appliedMigrations(client: Pick<Client, "execute">): Promise<{ position: number; tag: string }[]> {
  const { rows: tables } = await client.execute("select name from sqlite_master where name = 'steerage_migrations'");
  if (tables.length === 0) return [];
  return readLog(client);
}

async function readLog(connection: Pick<Client, "execute">): Promise<{ position: number; tag: string }[]> {
  const { rows } = await connection.execute("select position, tag from steerage_migrations order by position");
  return rows.map(({ position, tag }) => {
    if (typeof tag !== "string") throw new MigrationRefused("the list of its migrations cannot be read");
    return { position: Number(position), tag };
  });
}

async function migrateFile(client: Client, available: readonly Migration[], nowMs: number): Promise<string[]> {
  await client.execute("pragma foreign_keys = off");
  try {
    // Takes the write lock at once, so whoever comes second reads the first one's work below.
    const transaction = await client.transaction("write");
    try {
      await transaction.execute(CREATE_LOG);
      const pending = pendingMigrations(await readLog(transaction), available);
      for (const migration of pending) {
        for (const statement of migration.statements) await transaction.execute(statement);
        await transaction.execute({ sql: INSERT_LOG, args: [migration.position, migration.tag, nowMs] });
      }
      const { rows: broken } = await transaction.execute("pragma foreign_key_check");
      if (broken.length > 0) {
        throw new MigrationRefused("the migration would leave rows that point nowhere; nothing was changed");
      }
      await transaction.commit();
      return pending.map(({ tag }) => tag);
    } finally {
      transaction.close();
    }
  } finally {
    await client.execute("pragma foreign_keys = on");
  }
}

/** A server runs the batch with foreign keys off, as a whole or not at all; a second runner fails on the log's key. */
async function migrateServer(client: Client, pending: readonly Migration[], nowMs: number): Promise<string[]> {
  await client.execute(CREATE_LOG);
  await client.migrate(
    pending.flatMap((migration) => [
      { sql: INSERT_LOG, args: [migration.position, migration.tag, nowMs] },
      ...migration.statements.map((sql) => ({ sql, args: [] })),
    ]),
  );
  return pending.map(({ tag }) => tag);
}

const INSERT_LOG = "insert into steerage_migrations (position, tag, applied_at) values (?, ?, ?)";
