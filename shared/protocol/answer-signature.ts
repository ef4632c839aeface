import { z } from "zod";

/** Carries the edge's signature over its answer to a report: a JWT (EdDSA) by a key of the edge. */
export const ANSWER_SIGNATURE_HEADER = "x-steerage-answer-signature";
/** `typ` of its protected header, so that no signature for one purpose serves the other. */
export const ANSWER_SIGNATURE_TYPE = "steerage-answer+jwt";

/** What is signed: this answer, to this very report, of this host. A report's epoch and number make it unique. */
export const answerClaimsSchema = z.object({
  /** The edge's name. */
  iss: z.string().min(1),
  /** The host's name. */
  aud: z.string().min(1),
  /** Hex SHA-256 of the report's body as the host sent it. */
  report_sha256: z.string(),
  /** Hex SHA-256 of the answer's body as the edge sent it. */
  answer_sha256: z.string(),
});
export type AnswerClaims = z.infer<typeof answerClaimsSchema>;
