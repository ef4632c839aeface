import { and, asc, eq, isNull } from "drizzle-orm";
import { StoreConflict, type HostRecord, type KeyRecord, type LimitsChange, type NewKey } from "../ports/key-store.ts";
import { bumpRevision, KEYS } from "./revision.ts";
import type { Database } from "./database.ts";
import { changedColumns, DEFAULT_ACCOUNT, ensureAccount, limitColumns, scopeLimits } from "./scope-queries.ts";
import { accounts, hosts, keys, projects, revisions } from "./schema.ts";

export async function findKey(database: Database, keyId: string): Promise<KeyRecord | null> {
  const [row] = await selectKeys(database).where(eq(keys.publicId, keyId));
  return row === undefined ? null : keyRecord(row);
}

export async function listKeys(database: Database): Promise<KeyRecord[]> {
  const rows = await selectKeys(database).orderBy(asc(keys.createdAt), asc(keys.publicId));
  return rows.map(keyRecord);
}

export async function keyRevision(database: Database): Promise<number> {
  const [row] = await database.select().from(revisions).where(eq(revisions.subject, KEYS));
  return row?.revision ?? 0;
}

/** Runs in a transaction. */
export async function createKey(database: Database, key: NewKey): Promise<KeyRecord> {
  const [project] = await database.select().from(projects).where(eq(projects.name, key.project));
  const account = key.account ?? project?.account ?? DEFAULT_ACCOUNT;
  if (project !== undefined && project.account !== account) {
    throw new StoreConflict(`project '${key.project}' belongs to account '${project.account}', not to '${account}'`);
  }
  if (project === undefined) {
    await ensureAccount(database, account, key.createdAtMs);
    await database.insert(projects).values({ name: key.project, account, createdAt: key.createdAtMs });
  }
  await database.insert(keys).values({
    publicId: key.keyId,
    project: key.project,
    secretSha256: key.secretSha256,
    ...limitColumns(key.limits),
    band: key.band,
    createdAt: key.createdAtMs,
  });
  await bumpRevision(database);
  const created = await findKey(database, key.keyId);
  if (created === null) throw new Error("the key that was just inserted is not there");
  return created;
}

/** Runs in a transaction. */
export async function updateKey(database: Database, keyId: string, change: LimitsChange): Promise<KeyRecord | null> {
  if ((await findKey(database, keyId)) === null) return null;
  await database.update(keys).set(changedColumns(change)).where(eq(keys.publicId, keyId));
  await bumpRevision(database);
  return findKey(database, keyId);
}

/** Runs in a transaction. */
export async function revokeKey(database: Database, keyId: string, atMs: number): Promise<boolean> {
  const [known] = await database.select({ keyId: keys.publicId }).from(keys).where(eq(keys.publicId, keyId));
  if (known === undefined) return false;
  await database
    .update(keys)
    .set({ revokedAt: atMs })
    .where(and(eq(keys.publicId, keyId), isNull(keys.revokedAt)));
  await bumpRevision(database);
  return true;
}

export async function findHostByToken(database: Database, tokenSha256: string): Promise<HostRecord | null> {
  const [row] = await database.select().from(hosts).where(eq(hosts.tokenSha256, tokenSha256));
  return row === undefined ? null : hostRecord(row);
}

export async function listHosts(database: Database): Promise<HostRecord[]> {
  return (await database.select().from(hosts).orderBy(asc(hosts.name))).map(hostRecord);
}

/** Runs in a transaction. */
export async function enrollHost(
  database: Database,
  host: string,
  tokenSha256: string,
  atMs: number,
): Promise<HostRecord> {
  const row = { name: host, tokenSha256, enrolledAt: atMs, revokedAt: null };
  await database.insert(hosts).values(row).onConflictDoUpdate({ target: hosts.name, set: row });
  await bumpRevision(database);
  return hostRecord(row);
}

/** Runs in a transaction. */
export async function revokeHost(database: Database, host: string, atMs: number): Promise<boolean> {
  const [known] = await database.select({ name: hosts.name }).from(hosts).where(eq(hosts.name, host));
  if (known === undefined) return false;
  await database
    .update(hosts)
    .set({ revokedAt: atMs })
    .where(and(eq(hosts.name, host), isNull(hosts.revokedAt)));
  await bumpRevision(database);
  return true;
}

const selectKeys = (database: Database) =>
  database
    .select({ key: keys, project: projects, account: accounts })
    .from(keys)
    .innerJoin(projects, eq(keys.project, projects.name))
    .innerJoin(accounts, eq(projects.account, accounts.name));

function keyRecord(row: {
  key: typeof keys.$inferSelect;
  project: typeof projects.$inferSelect;
  account: typeof accounts.$inferSelect;
}): KeyRecord {
  return {
    keyId: row.key.publicId,
    secretSha256: row.key.secretSha256,
    account: row.project.account,
    project: row.project.name,
    highestBand: row.key.band ?? row.project.band,
    keyLimits: scopeLimits(row.key),
    projectLimits: scopeLimits(row.project),
    accountLimits: scopeLimits(row.account),
    createdAtMs: row.key.createdAt,
    revokedAtMs: row.key.revokedAt,
  };
}

function hostRecord(row: typeof hosts.$inferSelect): HostRecord {
  return { host: row.name, tokenSha256: row.tokenSha256, enrolledAtMs: row.enrolledAt, revokedAtMs: row.revokedAt };
}
