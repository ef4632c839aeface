import { z } from "zod";

/** The one signature algorithm between edge and host; a token that names another is refused. */
export const TOKEN_ALGORITHM = "EdDSA";
/** Longest life of a token, seconds. A host remembers `jti` that long. */
export const TOKEN_LIFETIME_SECONDS = 30;
/** A host's clock may be off by this before corrections arrive, seconds. */
export const TOKEN_CLOCK_TOLERANCE_SECONDS = 5;

/** Claims of the bearer token on every request from edge to host. Everything internal travels signed, in here. */
export const inferenceClaimsSchema = z.object({
  /** The edge's name. */
  iss: z.string().min(1),
  /** The host's name. */
  aud: z.string().min(1),
  /** `<request id>.<attempt>`; a second use is a replay. */
  jti: z.string().min(1),
  iat: z.int(),
  exp: z.int(),
  method: z.string(),
  path: z.string(),
  /** Hex SHA-256 of the body as sent. */
  body_sha256: z.string(),
  request_id: z.string(),
  attempt: z.int().min(1),
  replica: z.string(),
  /** Prefix reuse stays among requests with the same salt: one per project. */
  cache_salt: z.string(),
});
export type InferenceClaims = z.infer<typeof inferenceClaimsSchema>;
