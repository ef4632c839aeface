import { sql } from "drizzle-orm";
import type { Database } from "./database.ts";
import { revisions } from "./schema.ts";

/** The subject under which every change of keys, limits and hosts is counted. */
export const KEYS = "keys";

/** Tells every edge that what it knows of keys is void. Runs in a transaction. */
export async function bumpRevision(database: Database): Promise<void> {
  await database
    .insert(revisions)
    .values({ subject: KEYS, revision: 1 })
    .onConflictDoUpdate({ target: revisions.subject, set: { revision: sql`${revisions.revision} + 1` } });
}
