/** Finds out which host sends a report, by its enrolment token (table `hosts`, SHA-256 only). */
export interface HostAuthenticator {
  /**
   * `token` is the header's text after the scheme. Resolves with the host's name; rejects with ApiError
   * invalid_api_key, or authentication_unavailable when the store is away and the token was never seen.
   */
  authenticateHost(token: string): Promise<string>;
}
