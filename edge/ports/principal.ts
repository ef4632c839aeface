import type { ScopeLimits } from "./limits.ts";

/** The authenticated caller. */
export interface Principal {
  readonly account: string;
  readonly project: string;
  /** Public id of the key: what logs and the ledger may show. */
  readonly keyId: string;
  /** Highest band the project may use, or null for any. */
  readonly highestBand: string | null;
  readonly keyLimits: ScopeLimits;
  readonly projectLimits: ScopeLimits;
  readonly accountLimits: ScopeLimits;
}

/** Finds out who calls. Verdicts are cached; the secret is compared in constant time. */
export interface Authenticator {
  /**
   * `credential` is the header's text after the scheme. Rejects with ApiError invalid_api_key, or
   * authentication_unavailable when the store is away and the key was never seen.
   */
  authenticate(credential: string): Promise<Principal>;
}
