/** One use of an Idempotency-Key: the key is kept as its SHA-256, in hex. */
export interface AnswerKey {
  readonly project: string;
  readonly keySha256: string;
}

export interface AnswerClaim extends AnswerKey {
  /** SHA-256 of what was asked: the same key with another request is a mistake. */
  readonly fingerprint: string;
  /** The process that answers: claims of another one end with its lease. */
  readonly holder: string;
  readonly requestId: string;
  readonly leaseMs: number;
}

/** A first answer. `body` is null where it was too large to be kept. */
export interface KeptAnswer {
  readonly requestId: string;
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string | null;
}

export type ClaimDecision =
  | { readonly kind: "claimed" }
  | { readonly kind: "kept"; readonly answer: KeptAnswer }
  /** Somebody answers it now. */
  | { readonly kind: "running" }
  | { readonly kind: "different" }
  /** The project has used as many keys as are remembered. */
  | { readonly kind: "full" };

export interface AnswerBounds {
  readonly maxKeys: number;
  readonly maxBytes: number;
}

/** First answers by Idempotency-Key, for every edge of one database. Time is the database's own; plain JSON. */
export interface AnswerStore {
  claimAnswer(claim: AnswerClaim, bounds: Pick<AnswerBounds, "maxKeys">): Promise<ClaimDecision>;
  /** Ends a claim of this holder. The body is left out when the project's answers would be larger than `maxBytes`. */
  keepAnswer(
    key: AnswerKey & { readonly holder: string },
    answer: KeptAnswer,
    term: Pick<AnswerBounds, "maxBytes"> & { readonly keepMs: number },
  ): Promise<void>;
  /** Ends a claim of this holder without an answer: the next request with this key is a new one. */
  dropClaim(key: AnswerKey & { readonly holder: string }): Promise<void>;
  renewClaims(holder: string, leaseMs: number): Promise<void>;
  /** Deletes what is over. */
  forgetAnswers(): Promise<void>;
}
