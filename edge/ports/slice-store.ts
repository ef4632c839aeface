import type { EdgeIdentity } from "./edge-store.ts";
import type { BudgetPeriod } from "./limits.ts";

export type RateResource = "requests" | "tokens";

/** What an edge wants of a rate that it shares: amounts are requests or tokens. */
export interface RateAsk {
  readonly scope: string;
  readonly resource: RateResource;
  readonly perMinute: number;
  /** Returned unused; negative where more was used than was there. */
  readonly back: number;
  /** What requests that wait need; 0 where none waits. */
  readonly need: number;
  /** Whether a slice in advance is wanted beyond that. */
  readonly ahead: boolean;
  /** What an edge that was alone until now knows to be left; null where the database knows better. */
  readonly left: number | null;
}

/** What an edge wants to hold of a budget. Nano-dollars, decimal text. */
export interface BudgetAsk {
  readonly scope: string;
  readonly period: BudgetPeriod;
  /** Account, project and key id, as far as the scope reaches down: whose spending counts. */
  readonly path: readonly string[];
  /** Unix milliseconds; spending from here until the end counts. */
  readonly startMs: number;
  readonly endMs: number | null;
  readonly limitNanoUsd: string;
  /** Reserved, or settled and not in the database yet: given whatever is left. */
  readonly committedNanoUsd: string;
  /** What it goes on holding in any case; at least what is committed, at most what it held. */
  readonly keepNanoUsd: string;
  /** The least that helps requests that wait, what is committed included. */
  readonly needNanoUsd: string;
  readonly ahead: boolean;
}

export interface SliceRequest {
  readonly edge: EdgeIdentity;
  readonly rates: readonly RateAsk[];
  readonly budgets: readonly BudgetAsk[];
}

export interface RateGrant {
  readonly granted: number;
  /** What is left in the database after it. */
  readonly left: number;
  /** For how long somebody could not be served; null while there is enough for everybody. */
  readonly starvedForMs: number | null;
}

export interface BudgetGrant {
  readonly heldNanoUsd: string;
  /** Left for everybody after it. */
  readonly freeNanoUsd: string;
  readonly spentNanoUsd: string;
  /** Held by all the others. */
  readonly othersNanoUsd: string;
  readonly starvedForMs: number | null;
}

export type SliceAnswer =
  | {
      readonly kind: "granted";
      /** A live edge that has not told yet what it uses: until then nothing new is given. */
      readonly waitsFor: string | null;
      /** Edges that live, this one included. */
      readonly edges: number;
      /** In the order of what was asked. */
      readonly rates: readonly RateGrant[];
      readonly budgets: readonly BudgetGrant[];
    }
  /** Another process has this edge's name. */
  | { readonly kind: "lost" };

/** Owner of what edges of one database share. A rejection means that the store is away; a grant may then be lost. */
export interface SliceStore {
  /** One transaction: takes back, gives, and says what is left. It makes the edge one that shares. */
  takeSlices(request: SliceRequest): Promise<SliceAnswer>;
  /** What a former process of this edge held is known to be in the database by now. */
  dropFormerSlices(edge: string): Promise<void>;
}
