import type { InStatement, ResultSet } from "@libsql/client";
import { z } from "zod";
import type { AnswerBounds, AnswerClaim, AnswerKey, ClaimDecision, KeptAnswer } from "../ports/answer-store.ts";

/**
 * Every question is one exchange, however far the database is: a caller waits for it. So these are statements that
 * decide for themselves, by the database's own clock.
 */
const NOW_MS = "cast(unixepoch('subsec') * 1000 as integer)";

/**
 * To be run as one transaction, so that of two that ask for the same key at once one is the first: what is over makes
 * way, the claim is written where there is room for it, and whatever then stands there is read.
 */
export function claimStatements(claim: AnswerClaim, { maxKeys }: Pick<AnswerBounds, "maxKeys">): InStatement[] {
  const { project, keySha256, fingerprint, holder, requestId, leaseMs } = claim;
  return [
    {
      sql: `delete from first_answers where project = ? and key_sha256 = ? and expires_at <= ${NOW_MS}`,
      args: [project, keySha256],
    },
    {
      sql:
        "insert into first_answers (project, key_sha256, fingerprint, holder, request_id, expires_at, bytes) " +
        `select ?, ?, ?, ?, ?, ${NOW_MS} + ?, 0 ` +
        "where (select count(*) from first_answers where project = ?) < ? on conflict do nothing",
      args: [project, keySha256, fingerprint, holder, requestId, BigInt(leaseMs), project, BigInt(maxKeys)],
    },
    {
      sql:
        "select fingerprint, holder, request_id, status, headers, body from first_answers " +
        "where project = ? and key_sha256 = ?",
      args: [project, keySha256],
    },
  ];
}

const rowSchema = z.object({
  fingerprint: z.string(),
  holder: z.string(),
  request_id: z.string(),
  status: z.coerce.number().nullable(),
  headers: z.string().nullable(),
  body: z.string().nullable(),
});
const headersSchema = z.record(z.string(), z.string());

/** What the statements above found. */
export function claimDecision(results: readonly ResultSet[], claim: AnswerClaim): ClaimDecision {
  const found = results.at(-1)?.rows[0];
  if (found === undefined) return { kind: "full" };
  const row = rowSchema.parse({ ...found });
  if (row.fingerprint !== claim.fingerprint) return { kind: "different" };
  if (row.status !== null) {
    const headers = headersSchema.parse(JSON.parse(row.headers ?? "{}"));
    return { kind: "kept", answer: { requestId: row.request_id, status: row.status, headers, body: row.body } };
  }
  return row.holder === claim.holder && row.request_id === claim.requestId ? { kind: "claimed" } : { kind: "running" };
}

export function keepStatement(
  key: AnswerKey & { readonly holder: string },
  { requestId, status, headers, body }: KeptAnswer,
  term: Pick<AnswerBounds, "maxBytes"> & { readonly keepMs: number },
): InStatement {
  const bytes = body === null ? 0 : new TextEncoder().encode(body).length;
  const fits = "(select coalesce(sum(bytes), 0) from first_answers where project = ?) + ? <= ?";
  const ifItFits = [key.project, BigInt(bytes), BigInt(term.maxBytes)];
  return {
    sql:
      `update first_answers set request_id = ?, status = ?, headers = ?, expires_at = ${NOW_MS} + ?, ` +
      `body = case when ${fits} then ? end, bytes = case when ${fits} then ? else 0 end where ${CLAIM_OF}`,
    args: [
      requestId,
      BigInt(status),
      JSON.stringify(headers),
      BigInt(term.keepMs),
      ...ifItFits,
      body,
      ...ifItFits,
      BigInt(bytes),
      ...claimOf(key),
    ],
  };
}

export const dropStatement = (key: AnswerKey & { readonly holder: string }): InStatement => ({
  sql: `delete from first_answers where ${CLAIM_OF}`,
  args: claimOf(key),
});

export const renewStatement = (holder: string, leaseMs: number): InStatement => ({
  sql: `update first_answers set expires_at = ${NOW_MS} + ? where holder = ? and status is null`,
  args: [BigInt(leaseMs), holder],
});

export const forgetStatement: InStatement = {
  sql: `delete from first_answers where expires_at <= ${NOW_MS}`,
  args: [],
};

const CLAIM_OF = "project = ? and key_sha256 = ? and holder = ? and status is null";
const claimOf = ({ project, keySha256, holder }: AnswerKey & { readonly holder: string }): string[] => [
  project,
  keySha256,
  holder,
];
