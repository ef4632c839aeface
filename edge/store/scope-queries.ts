import { asc, eq } from "drizzle-orm";
import { StoreConflict, type AccountRecord, type LimitsChange, type ProjectRecord } from "../ports/key-store.ts";
import type { ScopeLimits } from "../ports/limits.ts";
import type { Database } from "./database.ts";
import { bumpRevision } from "./revision.ts";
import { accounts, projects } from "./schema.ts";

/** Of projects that name none. */
export const DEFAULT_ACCOUNT = "default";

interface LimitColumns {
  readonly rpm: number | null;
  readonly tpm: number | null;
  readonly budgetNanoUsd: string | null;
  readonly budgetDayNanoUsd: string | null;
  readonly budgetMonthNanoUsd: string | null;
}

export function scopeLimits({ rpm, tpm, ...budgets }: LimitColumns): ScopeLimits {
  const { budgetNanoUsd, budgetDayNanoUsd, budgetMonthNanoUsd } = budgets;
  return { requestsPerMinute: rpm, tokensPerMinute: tpm, budgetNanoUsd, budgetDayNanoUsd, budgetMonthNanoUsd };
}

export function limitColumns({ requestsPerMinute, tokensPerMinute, ...budgets }: ScopeLimits): LimitColumns {
  return { rpm: requestsPerMinute, tpm: tokensPerMinute, ...budgets };
}

/** The columns of what is given. */
export function changedColumns({ limits, band }: LimitsChange): Partial<LimitColumns> & { band?: string | null } {
  const { requestsPerMinute: rpm, tokensPerMinute: tpm, ...budgets } = limits;
  return {
    ...budgets,
    ...(rpm === undefined ? {} : { rpm }),
    ...(tpm === undefined ? {} : { tpm }),
    ...(band === undefined ? {} : { band }),
  };
}

/** Makes an account that is named for the first time. Runs in a transaction. */
export async function ensureAccount(database: Database, name: string, createdAtMs: number): Promise<void> {
  await database.insert(accounts).values({ name, createdAt: createdAtMs }).onConflictDoNothing();
}

export async function listProjects(database: Database): Promise<ProjectRecord[]> {
  return (await database.select().from(projects).orderBy(asc(projects.name))).map(projectRecord);
}

export async function listAccounts(database: Database): Promise<AccountRecord[]> {
  return (await database.select().from(accounts).orderBy(asc(accounts.name))).map(accountRecord);
}

/** Runs in a transaction. */
export async function createProject(
  database: Database,
  { project, account, limits, band, createdAtMs }: Omit<ProjectRecord, "account"> & { readonly account: string | null },
): Promise<ProjectRecord> {
  if ((await findProject(database, project)) !== null)
    throw new StoreConflict(`there is a project '${project}' already`);
  const owner = account ?? DEFAULT_ACCOUNT;
  await ensureAccount(database, owner, createdAtMs);
  await database
    .insert(projects)
    .values({ name: project, account: owner, ...limitColumns(limits), band, createdAt: createdAtMs });
  return { project, account: owner, limits, band, createdAtMs };
}

/** Runs in a transaction. */
export async function updateProject(
  database: Database,
  name: string,
  change: LimitsChange,
): Promise<ProjectRecord | null> {
  if ((await findProject(database, name)) === null) return null;
  await database.update(projects).set(changedColumns(change)).where(eq(projects.name, name));
  await bumpRevision(database);
  return findProject(database, name);
}

/** Runs in a transaction. */
export async function createAccount(database: Database, record: AccountRecord): Promise<AccountRecord> {
  const { account, limits, createdAtMs } = record;
  if ((await findAccount(database, account)) !== null)
    throw new StoreConflict(`there is an account '${account}' already`);
  await database.insert(accounts).values({ name: account, ...limitColumns(limits), createdAt: createdAtMs });
  return record;
}

/** Runs in a transaction. */
export async function updateAccount(
  database: Database,
  name: string,
  change: Pick<LimitsChange, "limits">,
): Promise<AccountRecord | null> {
  if ((await findAccount(database, name)) === null) return null;
  await database.update(accounts).set(changedColumns(change)).where(eq(accounts.name, name));
  await bumpRevision(database);
  return findAccount(database, name);
}

async function findProject(database: Database, name: string): Promise<ProjectRecord | null> {
  const [row] = await database.select().from(projects).where(eq(projects.name, name));
  return row === undefined ? null : projectRecord(row);
}

async function findAccount(database: Database, name: string): Promise<AccountRecord | null> {
  const [row] = await database.select().from(accounts).where(eq(accounts.name, name));
  return row === undefined ? null : accountRecord(row);
}

const projectRecord = (row: typeof projects.$inferSelect): ProjectRecord => ({
  project: row.name,
  account: row.account,
  limits: scopeLimits(row),
  band: row.band,
  createdAtMs: row.createdAt,
});

const accountRecord = (row: typeof accounts.$inferSelect): AccountRecord => ({
  account: row.name,
  limits: scopeLimits(row),
  createdAtMs: row.createdAt,
});
