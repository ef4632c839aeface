import type { Logger } from "../shared/logging/logger.ts";
import type { RandomBytes } from "../shared/ids.ts";
import type { Clock } from "../shared/time/clock.ts";
import type { RequestDecision } from "./dispatch/account/decision-log.ts";
import type { InferenceRequest } from "./dispatch/inference-request.ts";
import type { SaeAnswer, SaeCall } from "./dispatch/sae-calls.ts";
import type { EdgeMetrics, MetricsSources } from "./monitoring/edge-metrics.ts";
import type { Fleet } from "./ports/fleet.ts";
import type { HostAuthenticator } from "./ports/host-authenticator.ts";
import type { Ledger, Price } from "./ports/ledger.ts";
import type { Limits } from "./ports/limits.ts";
import type { Authenticator, Principal } from "./ports/principal.ts";
import type { ResponseWriter } from "./ports/response-writer.ts";
import type { AnswerSigner } from "./ports/signer.ts";

/** What the HTTP room knows of one exchange and hands to the runtime. */
export interface Exchange {
  readonly request: Request;
  /** What the runtime gave along with the request: Node's objects, or a Worker's bindings. */
  readonly bindings: unknown;
}

/**
 * Brings an answer written through a ResponseWriter to this runtime's client. `run` never rejects; the returned
 * response is what Hono hands back to the runtime.
 */
export type Respond = (exchange: Exchange, run: (writer: ResponseWriter) => Promise<void>) => Promise<Response>;

/** One request's life from limits to the last byte. */
export interface Dispatch {
  /** Never rejects: whatever happens is written as an answer or as an error body. */
  run(request: InferenceRequest, writer: ResponseWriter): Promise<void>;
}

type AcceptReport = Ledger["acceptReport"];
type AskedOf = Ledger["askedOf"];

/** The ledger's side of a host's report; where the ledger lives in another object the answer takes a while. */
export interface ReportedUsage {
  acceptReport(...report: Parameters<AcceptReport>): ReturnType<AcceptReport> | Promise<ReturnType<AcceptReport>>;
  askedOf(...host: Parameters<AskedOf>): ReturnType<AskedOf> | Promise<ReturnType<AskedOf>>;
}

export type StoreState = "ok" | "away";

export interface BandSetting {
  readonly name: string;
  readonly priority: number;
}

export interface HttpSettings {
  /** The edge's name: `iss` of its tokens. */
  readonly edge: string;
  readonly maxBodyBytes: number;
  readonly bands: readonly BandSetting[];
  readonly defaultBand: string;
  readonly bandHeader: string;
  readonly sessionHeader: string;
  /** Plain HTTP to hosts off loopback is allowed. */
  readonly insecure: boolean;
  /** What a draining edge tells callers to wait, seconds. */
  readonly drainRetryAfterSeconds: number;
}

/** Everything the app needs, made by a runtime leaf. */
export interface EdgeDeps {
  readonly clock: Clock;
  readonly logger: Logger;
  readonly randomBytes: RandomBytes;
  readonly settings: HttpSettings;
  readonly authenticator: Authenticator;
  /** The one principal of everybody where keys are switched off; null where a key is needed. */
  readonly everybody: Principal | null;
  readonly hostAuthenticator: HostAuthenticator;
  readonly fleet: Fleet;
  readonly limits: Pick<Limits, "inspect">;
  readonly ledger: ReportedUsage;
  readonly signer: AnswerSigner;
  /** The number under which this edge tells hosts what to hold; null where another edge of the database does. */
  readonly placementLease: () => number | null;
  /** Dead edges of the same database, for whose requests this one takes reports. */
  readonly standsInFor?: () => readonly string[];
  readonly dispatch: Dispatch;
  /** Asks a replica about an SAE that it holds. Throws an ApiError when no answer can be had. */
  readonly callSae: (call: SaeCall) => Promise<SaeAnswer>;
  /** Null where a model has no price of its own and there is no default. */
  readonly priceOf: (model: string) => Price | null;
  /** Why a request of a project went where it went; null when that is not known (any more). */
  readonly decisionOf?: (requestId: string, project: string) => RequestDecision | null;
  /** What was decided lately for all projects, the newest first; for operators alone. */
  readonly latestDecisions?: (count: number) => readonly RequestDecision[];
  readonly metrics: EdgeMetrics;
  readonly metricsSources: MetricsSources;
  /** Shutting down: running requests finish, new ones are refused. */
  readonly draining: () => boolean;
  /** Whether the key and usage store answers. */
  readonly storeState: () => Promise<StoreState>;
  readonly respond: Respond;
}
