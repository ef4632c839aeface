import { ApiError } from "../../shared/errors/api-error.ts";

/** Longest credential that is looked at; every real one is far shorter. */
const MAX_CREDENTIAL_LENGTH = 512;

/**
 * The credential of an Authorization header. The scheme is case-insensitive; runtimes join repeated headers with a
 * comma, which no key holds, so two that differ are seen and refused. Throws missing_api_key or invalid_api_key.
 */
export function bearerCredential(header: string | undefined): string {
  if (header === undefined) throw new ApiError("missing_api_key");
  const only = header.includes(",") ? onlyOne(header) : header.trim();
  if (only === null) {
    throw new ApiError("invalid_api_key", { message: "Authorization was sent more than once with different values." });
  }
  const match = /^bearer(?: +(\S+))?$/i.exec(only);
  if (match?.[1] === undefined) throw new ApiError("missing_api_key");
  if (match[1].length > MAX_CREDENTIAL_LENGTH) throw new ApiError("invalid_api_key");
  return match[1];
}

/** What is repeated the same is one; null where they differ. */
function onlyOne(header: string): string | null {
  const [first = null, ...others] = new Set(header.split(",").map((part) => part.trim()));
  return others.length === 0 ? first : null;
}
