/** Finds out which host reports. Verdicts are cached like those of keys. */
export interface HostAuthenticator {
  /**
   * `credential` is the enrolment token, the header's text after the scheme; answers the host's name. Rejects with
   * ApiError host_unauthorized, or authentication_unavailable when the store is away and the token was never seen.
   */
  authenticateHost(credential: string): Promise<string>;
}
