import { and, eq, isNull, lte, sql } from "drizzle-orm";
import type { AnswerBounds, AnswerClaim, AnswerKey, ClaimDecision, KeptAnswer } from "../ports/answer-store.ts";
import type { Database } from "./database.ts";
import { databaseNowMs } from "./edge-queries.ts";
import { firstAnswers } from "./schema.ts";

/** Runs in a write transaction, so of two that ask for the same key at once one is the first. */
export async function claimAnswer(
  database: Database,
  claim: AnswerClaim,
  { maxKeys }: Pick<AnswerBounds, "maxKeys">,
): Promise<ClaimDecision> {
  const nowMs = await databaseNowMs(database);
  const [row] = await database.select().from(firstAnswers).where(isKey(claim));
  if (row !== undefined && row.expiresAt > nowMs) {
    if (row.fingerprint !== claim.fingerprint) return { kind: "different" };
    if (row.status === null) return { kind: "running" };
    const { requestId, status, headers, body } = row;
    return { kind: "kept", answer: { requestId, status, headers: headers ?? {}, body } };
  }
  if (row === undefined) {
    const [counted] = await database
      .select({ keys: sql`count(*)`.mapWith(Number) })
      .from(firstAnswers)
      .where(eq(firstAnswers.project, claim.project));
    if ((counted?.keys ?? 0) >= maxKeys) return { kind: "full" };
  }
  const { leaseMs, ...mine } = claim;
  const values = { ...mine, expiresAt: nowMs + leaseMs, status: null, headers: null, body: null, bytes: 0 };
  await database
    .insert(firstAnswers)
    .values(values)
    .onConflictDoUpdate({ target: [firstAnswers.project, firstAnswers.keySha256], set: values });
  return { kind: "claimed" };
}

/** Runs in a write transaction. */
export async function keepAnswer(
  database: Database,
  key: AnswerKey & { readonly holder: string },
  { requestId, status, headers, body }: KeptAnswer,
  term: Pick<AnswerBounds, "maxBytes"> & { readonly keepMs: number },
): Promise<void> {
  const nowMs = await databaseNowMs(database);
  const [stored] = await database
    .select({ bytes: sql`coalesce(sum(${firstAnswers.bytes}), 0)`.mapWith(Number) })
    .from(firstAnswers)
    .where(eq(firstAnswers.project, key.project));
  const bytes = body === null ? 0 : new TextEncoder().encode(body).length;
  const fits = (stored?.bytes ?? 0) + bytes <= term.maxBytes;
  await database
    .update(firstAnswers)
    .set({
      requestId,
      status,
      headers,
      body: fits ? body : null,
      bytes: fits ? bytes : 0,
      expiresAt: nowMs + term.keepMs,
    })
    .where(isClaimOf(key));
}

export async function dropClaim(database: Database, key: AnswerKey & { readonly holder: string }): Promise<void> {
  await database.delete(firstAnswers).where(isClaimOf(key));
}

/** Runs in a write transaction. */
export async function renewClaims(database: Database, holder: string, leaseMs: number): Promise<void> {
  const nowMs = await databaseNowMs(database);
  await database
    .update(firstAnswers)
    .set({ expiresAt: nowMs + leaseMs })
    .where(and(eq(firstAnswers.holder, holder), isNull(firstAnswers.status)));
}

/** Runs in a write transaction. */
export async function forgetAnswers(database: Database): Promise<number> {
  const nowMs = await databaseNowMs(database);
  const gone = await database
    .delete(firstAnswers)
    .where(lte(firstAnswers.expiresAt, nowMs))
    .returning({ requestId: firstAnswers.requestId });
  return gone.length;
}

const isKey = ({ project, keySha256 }: AnswerKey) =>
  and(eq(firstAnswers.project, project), eq(firstAnswers.keySha256, keySha256));

const isClaimOf = (key: AnswerKey & { readonly holder: string }) =>
  and(isKey(key), eq(firstAnswers.holder, key.holder), isNull(firstAnswers.status));
