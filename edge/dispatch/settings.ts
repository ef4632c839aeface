import type { Logger } from "../../shared/logging/logger.ts";
import type { Clock } from "../../shared/time/clock.ts";
import type { Coordinator } from "../ports/coordinator.ts";
import type { Fleet } from "../ports/fleet.ts";
import type { Ledger, Price, RequestOutcome } from "../ports/ledger.ts";
import type { Limits } from "../ports/limits.ts";
import type { Signer } from "../ports/signer.ts";
import type { Upstream } from "../ports/upstream.ts";
import type { DecidedAttempt } from "./account/decision-log.ts";

/** Milliseconds; 0 switches a limit off. */
export interface DispatchTimeouts {
  /** To get a connection. */
  readonly dialMs: number;
  /** To the response headers of a stream, which come before generation starts. */
  readonly responseHeaderMs: number;
  /** From the request's dispatch to the first token of a stream that is not empty. */
  readonly firstTokenMs: number;
  /** Between two events of a stream, after the first token. */
  readonly idleMs: number;
  /** A whole answer, whose headers come only when it is complete. */
  readonly generationMs: number;
  /** From received to the last byte, over all attempts. */
  readonly totalMs: number;
  /** How long a client may take nothing of what is ready for it. */
  readonly clientStallMs: number;
}

export interface PricedModel {
  readonly price: Price;
  readonly priceVersion: number;
}

/** A model's routing profile and promise, as far as attempts go. */
export interface DispatchPolicy {
  /** Further replicas that may be tried, only while the client has nothing of an answer. */
  readonly retries: number;
  /** Streams that are slow to begin are sent to a second machine too. */
  readonly hedging: boolean;
  /** Time to the first token that callers were promised; null: none. */
  readonly sloTtftMs: number | null;
}

export interface DispatchSettings {
  readonly policyOf: (modelId: string) => DispatchPolicy;
  readonly timeouts: DispatchTimeouts;
  /** Ask engines for usage on streams even when the caller did not, so that tokens are counted exactly. */
  readonly injectUsage: boolean;
  /** How long a request goes on looking for a machine that can be connected to, from the first that could not. */
  readonly withoutMachineMs: number;
  /** Silence after which a waiting stream gets a comment. */
  readonly keepAliveMs: number;
  /** How often a waiting stream that asked for it is told its place. */
  readonly progressEveryMs: number;
  /** How long a reservation waits for the machine's own count of an attempt that was cut. */
  readonly reportWaitMs: number;
  readonly priceOf: (modelId: string) => PricedModel;
  /** The operator's own key of a static endpoint, by endpoint id; null when it wants none. */
  readonly endpointKey: (endpointId: string) => string | null;
}

export const DEFAULT_DISPATCH_POLICY: DispatchPolicy = { retries: 2, hedging: false, sloTtftMs: null };

export const DEFAULT_DISPATCH_SETTINGS: Omit<DispatchSettings, "priceOf" | "endpointKey"> = {
  policyOf: () => DEFAULT_DISPATCH_POLICY,
  timeouts: {
    dialMs: 2_000,
    responseHeaderMs: 30_000,
    firstTokenMs: 60_000,
    idleMs: 30_000,
    generationMs: 600_000,
    totalMs: 1_800_000,
    clientStallMs: 60_000,
  },
  injectUsage: true,
  withoutMachineMs: 10_000,
  keepAliveMs: 15_000,
  progressEveryMs: 2_000,
  reportWaitMs: 60_000,
};

/** What dispatch tells of a request. Each request that started ends exactly once. */
export interface RequestMetrics {
  requestStarted(): void;
  requestEnded(ended: {
    readonly model: string;
    readonly outcome: RequestOutcome;
    readonly ttftMs: number | null;
    readonly tpotMs: number | null;
    readonly attempts: readonly Pick<DecidedAttempt, "model" | "end">[];
  }): void;
}

export interface DispatcherDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly coordinator: Coordinator;
  readonly fleet: Pick<Fleet, "unreachable" | "resolve">;
  readonly limits: Limits;
  readonly ledger: Ledger;
  readonly signer: Signer;
  readonly upstream: Upstream;
  readonly metrics: RequestMetrics;
  readonly settings: DispatchSettings;
}
