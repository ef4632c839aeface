/**
 * The Coordinator's port: JSON in, JSON out, cancel by id, because the owner may be another process or a Durable
 * Object. A request costs two calls, `admit` and `settle`; response bytes never pass through it.
 */

/** A place where an attempt can be sent. */
export interface ReplicaTarget {
  /** `<backend>/<replica>`, unique in the fleet. */
  readonly key: string;
  /** A `host` runs our agent: requests are signed and its reports settle them. An `endpoint` is any other server. */
  readonly kind: "host" | "endpoint";
  /** Host name or endpoint id. */
  readonly backend: string;
  readonly replicaId: string;
  /** Origin. */
  readonly url: string;
  /** What the backend calls the model. */
  readonly model: string;
  /** Of the host process; null for endpoints. */
  readonly epoch: number | null;
}

/** One replica as the fleet sees it now. */
export interface ReplicaDigest {
  readonly target: ReplicaTarget;
  readonly ready: boolean;
  readonly draining: boolean;
  readonly slots: number;
  /** By the replica's own last report, all edges together; null when it never reports. */
  readonly reportedInFlight: number | null;
  /** Requests of this edge that were in that count. */
  readonly reportedInFlightOfThisEdge: number | null;
  readonly waiting: number;
  /** Wall time of the report, by our clock; null when it never reports. */
  readonly reportedAtMs: number | null;
  readonly freeKvCells: number;
  readonly totalKvCells: number;
  readonly contextLength: number | null;
  readonly capabilities: readonly string[];
  readonly saes: readonly string[];
  /** Kinds of requests that the operator says it cannot do, whatever it reports. */
  readonly lacks?: readonly string[];
  readonly weight: number;
  /** Lower is tried first. */
  readonly priority: number;
}

/** The replicas that are interchangeable for one model, whole each time. */
export interface PoolDigest {
  readonly pool: string;
  readonly replicas: readonly ReplicaDigest[];
}

export interface AdmitRequest {
  readonly pool: string;
  readonly requestId: string;
  /** From 1. */
  readonly attempt: number;
  readonly project: string;
  readonly band: string;
  /** Wall time of the first arrival at an edge; a repeated admit keeps it. */
  readonly arrivedAtMs: number;
  /** Such as `chat`, `embeddings`. */
  readonly capability: string;
  /** SAEs that the replica must hold. */
  readonly saeIds: readonly string[];
  /** The request steers or senses with the only SAE there is, unnamed. */
  readonly needsSomeSae: boolean;
  /** Keys of replicas already tried. */
  readonly excludedReplicas: readonly string[];
  readonly bodyBytes: number;
  /** Whether the client says that it was refused before and comes back; null when it says neither. */
  readonly returning: boolean | null;
  /** Estimates; the exact counts come with `settle`. */
  readonly inputTokens: number;
  readonly outputTokens: number;
  /** Hash of project and session id; null when the caller named no session. */
  readonly session: number | null;
  /** The prompt as chained hashes of its blocks; null where nothing can be reused. */
  readonly prefix: PromptPrefix | null;
  /** What it needs beyond its route, such as `tools`. */
  readonly features?: readonly string[];
  readonly context?: ContextNeed;
  /** Time to the first token that its caller was promised; null or left out: none was. */
  readonly sloTtftMs?: number | null;
  /**
   * Not to wait: it is claimed at once, only while nobody waits and the pool is under a third loaded, or refused. For
   * a second machine beside one that is slow to begin.
   */
  readonly hedge?: boolean;
}

/** Tokens of context for prompt and answer. */
export interface ContextNeed {
  /** The prompt alone has surely no fewer. */
  readonly leastPromptTokens: number;
  /** Estimate of the prompt and the limit of the answer. */
  readonly expectedTokens: number;
}

/** A prompt without its text: the n-th hash stands for everything up to the end of the n-th block. */
export interface PromptPrefix {
  readonly hashes: readonly number[];
  readonly blockBytes: number;
  /** Of the part that was looked at. */
  readonly bytes: number;
}

export interface Claim {
  readonly claimId: string;
  readonly target: ReplicaTarget;
  /** Unless renewed, the claim is released then. */
  readonly expiresAtMs: number;
}

/** Why a request went where it went, as things stood then. */
export interface GrantReason {
  readonly band: string;
  readonly saturation: number;
  readonly ceiling: number;
  /** Replicas with room, the best first; not more than a few. */
  readonly candidates: readonly {
    readonly replica: string;
    /** Until it would be done with this request too. */
    readonly seconds: number;
    /** What the seconds are made of. */
    readonly terms: { readonly load: number; readonly kv: number; readonly slo: number };
    /** Bytes of the prompt that it is believed to know. */
    readonly matchedBytes: number;
  }[];
  /** Of the prompt that was looked at; what was matched is a share of it. */
  readonly promptBytes: number;
  /** What decided between those with room. */
  readonly by: "prefix" | "session" | "score";
}

/** How things stood when a request was refused. */
export interface Pressure {
  readonly band: string;
  readonly saturation: number;
  readonly ceiling: number;
  /** Requests that waited in its band. */
  readonly waiting: number;
}

export type AdmitDecision =
  | { readonly kind: "claimed"; readonly claim: Claim; readonly queuedMs: number; readonly why?: GrantReason }
  | { readonly kind: "cancelled" }
  | {
      readonly kind: "refused";
      readonly code: "queue_full" | "queue_timeout" | "no_replica_available" | "model_not_found";
      readonly retryAfterSeconds: number;
      readonly under?: Pressure;
    }
  | { readonly kind: "sae_not_available"; readonly available: readonly string[] }
  /** The prompt alone is longer than the longest context of the pool. */
  | { readonly kind: "context_exceeded"; readonly contextLength: number };

export type ClaimResult =
  | "answered"
  /** Refused for the caller's own fault: says nothing about the replica. */
  | "refused"
  | "failed"
  /** 429 or 503 of the replica: neither a success nor a failure; it is left alone for a while. */
  | "back_pressure"
  /** The client left: says nothing about the replica. */
  | "cancelled";

export interface SettleRequest {
  readonly pool: string;
  readonly claimId: string;
  readonly result: ClaimResult;
  /** How long a busy replica asked to be left alone. */
  readonly busyForMs?: number;
  /** What the attempt used, where it is known: fairness and speed are measured by it. */
  readonly tokens?: UsedTokens;
  /** Of a stream, from its claim on: what the machine is expected to take next time. */
  readonly pace?: { readonly ttftMs: number; readonly tpotMs: number | null };
}

export interface UsedTokens {
  readonly promptTokens: number;
  /** Of the prompt, taken from the cache. */
  readonly cachedTokens: number;
  readonly completionTokens: number;
}

export interface PoolStats {
  readonly pool: string;
  readonly inFlight: number;
  readonly queueDepthByBand: Readonly<Record<string, number>>;
  readonly oldestWaitMsByBand: Readonly<Record<string, number>>;
  /** Bytes of request bodies waiting. */
  readonly queueBytesByBand?: Readonly<Record<string, number>>;
  /** Replicas whose breaker is not closed, by key. */
  readonly breakers?: Readonly<Record<string, "open" | "half_open">>;
  readonly saturation: number;
  readonly replicas?: readonly ReplicaStats[];
}

/** One replica as the owner of its pool sees it now. */
export interface ReplicaStats {
  readonly replica: string;
  /** Ready and not draining. */
  readonly usable: boolean;
  readonly slots: number;
  /** By this edge. */
  readonly inFlight: number;
  /** By others, as it last reported; null when it never reports. */
  readonly othersInFlight: number | null;
  readonly waiting: number;
  readonly kvUse: number | null;
  readonly reportAgeMs: number | null;
}

/** Where a waiting request stands. */
export interface QueueProspect {
  /** From 1, higher bands before it included. */
  readonly place: number;
  /** Null while nothing is known. */
  readonly waitMs: number | null;
}

export interface Coordinator {
  /** Resolves when a replica is claimed, the request is refused, or it is cancelled. */
  admit(request: AdmitRequest): Promise<AdmitDecision>;
  /** Releases a claim, once; later calls for it change nothing. */
  settle(request: SettleRequest): Promise<void>;
  /** Takes a waiting request out of its queue; its `admit` resolves as cancelled. Unknown ids change nothing. */
  cancel(pool: string, requestId: string): Promise<void>;
  /** Keeps claims of long requests alive. */
  renew(pool: string, claimIds: readonly string[]): Promise<void>;
  /** News from the fleet. */
  update(digest: PoolDigest): Promise<void>;
  stats(): Promise<readonly PoolStats[]>;
  /** Null when it does not wait. */
  prospect?(pool: string, requestId: string): Promise<QueueProspect | null>;
}
