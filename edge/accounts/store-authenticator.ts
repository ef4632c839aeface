import { ApiError } from "../../shared/errors/api-error.ts";
import type { Logger } from "../../shared/logging/logger.ts";
import type { HostAuthenticator } from "../ports/host-authenticator.ts";
import type { KeyRecord, KeyStore } from "../ports/key-store.ts";
import type { Authenticator, Principal } from "../ports/principal.ts";
import { isHostToken, parseApiKey } from "./api-key.ts";
import { equalInConstantTime } from "./constant-time.ts";
import { CredentialVerifier, PATIENCE_MS, type CredentialVerifierDeps } from "./credential-verifier.ts";
import type { VerdictCacheSettings } from "./verdict-cache.ts";
import type { VerdictMemory } from "./verdict-memory.ts";

export interface StoreAuthenticatorDeps extends CredentialVerifierDeps {
  readonly store: KeyStore;
  readonly logger: Logger;
  readonly memory: VerdictMemory;
}

/** Every edge asks this often whether a key was made or revoked. */
const REVISION_POLL_MS = 1_000;
/** Compared with when there is no such key, so that a miss takes the same steps as a hit. */
const NO_SECRET_SHA256 = "0".repeat(64);

/**
 * API keys and enrolment tokens against the store. A credential of the wrong form never reaches the store; a verdict
 * is void within a second of any key's revocation.
 */
export class StoreAuthenticator implements Authenticator, HostAuthenticator {
  readonly #deps: StoreAuthenticatorDeps;
  readonly #keys: CredentialVerifier<Principal>;
  readonly #hosts: CredentialVerifier<string>;

  constructor(deps: StoreAuthenticatorDeps) {
    this.#deps = deps;
    this.#keys = new CredentialVerifier(deps, (credential) => this.#lookUpKey(credential), deps.memory.keys);
    this.#hosts = new CredentialVerifier(deps, (credential) => this.#lookUpHost(credential), deps.memory.hosts);
  }

  reconfigure(settings: VerdictCacheSettings): void {
    this.#deps.memory.keys.reconfigure(settings);
    this.#deps.memory.hosts.reconfigure(settings);
  }

  async authenticate(credential: string): Promise<Principal> {
    const principal = parseApiKey(credential) === null ? null : await this.#keys.verify(credential);
    if (principal === null) throw new ApiError("invalid_api_key");
    return principal;
  }

  async authenticateHost(credential: string): Promise<string> {
    const host = isHostToken(credential) ? await this.#hosts.verify(credential) : null;
    if (host === null) {
      throw new ApiError("host_unauthorized", { message: "The enrolment token of this host is not valid." });
    }
    return host;
  }

  /** Drops every verdict when the key revision has moved. While the store is away nothing is dropped. */
  async pollRevision(): Promise<void> {
    const { store, memory } = this.#deps;
    const revision = await store.keyRevision();
    if (memory.revision !== null && revision !== memory.revision) {
      this.#keys.forget();
      this.#hosts.forget();
    }
    memory.revision = revision;
  }

  /**
   * For runtimes on which nothing runs between requests: polls when the last poll is a second old, and waits for it,
   * but not long. Never rejects; while the store is away known keys go on working.
   */
  async catchUp(): Promise<void> {
    const { clock, logger, memory } = this.#deps;
    const nowMs = clock.monotonicMs();
    if (memory.askedAtMs !== null && nowMs - memory.askedAtMs < REVISION_POLL_MS) return;
    memory.askedAtMs = nowMs;
    await new Promise<void>((resolve) => {
      const cancel = clock.after(PATIENCE_MS, resolve);
      this.pollRevision()
        .catch((thrown: unknown) => logger.warn("the key store is away; known keys go on working", reasonOf(thrown)))
        .finally(cancel)
        .then(resolve, resolve);
    });
  }

  /** Polls the revision each second until the returned function is called. */
  watch(): () => void {
    const { clock, logger } = this.#deps;
    const state: { stopped: boolean; reachable: boolean; cancel: (() => void) | null } = {
      stopped: false,
      reachable: true,
      cancel: null,
    };
    const poll = async (): Promise<void> => {
      try {
        await this.pollRevision();
        if (!state.reachable) logger.info("the key store is back");
        state.reachable = true;
      } catch (thrown) {
        if (state.reachable) logger.warn("the key store is away; known keys go on working", reasonOf(thrown));
        state.reachable = false;
      }
      if (!state.stopped) state.cancel = clock.after(REVISION_POLL_MS, () => void poll());
    };
    void poll();
    return () => {
      state.stopped = true;
      state.cancel?.();
    };
  }

  async #lookUpKey(credential: string): Promise<Principal | null> {
    const parts = parseApiKey(credential);
    if (parts === null) return null;
    const secretSha256 = await this.#deps.sha256(parts.secret);
    const record = await this.#deps.store.findKey(parts.publicId);
    const equal = equalInConstantTime(secretSha256, record?.secretSha256 ?? NO_SECRET_SHA256);
    return record !== null && equal && record.revokedAtMs === null ? principalOf(record) : null;
  }

  async #lookUpHost(credential: string): Promise<string | null> {
    const tokenSha256 = await this.#deps.sha256(credential);
    const record = await this.#deps.store.findHostByToken(tokenSha256);
    const equal = equalInConstantTime(tokenSha256, record?.tokenSha256 ?? NO_SECRET_SHA256);
    return record !== null && equal && record.revokedAtMs === null ? record.host : null;
  }
}

function principalOf(record: KeyRecord): Principal {
  return {
    account: record.account,
    project: record.project,
    keyId: record.keyId,
    highestBand: record.highestBand,
    keyLimits: record.keyLimits,
    projectLimits: record.projectLimits,
    accountLimits: record.accountLimits,
  };
}

const reasonOf = (thrown: unknown): { reason: string } => ({
  reason: thrown instanceof Error ? thrown.message : String(thrown),
});
