import type { ClaimResult } from "../../ports/coordinator.ts";
import type { TokenCounts } from "../../ports/ledger.ts";
import type { Refusal } from "./refusal.ts";

/** What became of one attempt, as the relay saw it. */
export interface RelayResult {
  readonly kind:
    /** The whole answer went to the client; only its last bytes are held back, until it is in the ledger. */
    | "completed"
    | "cancelled"
    /** Something broke, or the machine refused; `refusal` says what the client should hear of it. */
    | "failed";
  readonly refusal: Refusal | null;
  /** What the machine really did, for the log only: its status, or how the connection failed. */
  readonly detail: string | null;
  /** Another machine may be tried: this one computed nothing that the client has seen. */
  readonly retryable: boolean;
  /** The request's own time was up. */
  readonly expired: boolean;
  readonly claimResult: ClaimResult;
  readonly busyForMs: number | null;
  /** Still to be written when all is settled. */
  readonly tail: string;
  /** No connection was made, so nothing was sent. */
  readonly unreached: boolean;
  /** The machine cannot have computed anything: it was not reached, or refused before it began. */
  readonly nothingComputed: boolean;
  /** It began to answer with success. */
  readonly answering: boolean;
  readonly usage: TokenCounts | null;
  /** Stream chunks with text: a lower bound of the tokens that came. */
  readonly tokenEvents: number;
  readonly receipt: string | null;
  /** Monotonic. */
  readonly firstTokenAtMs: number | null;
  readonly lastTokenAtMs: number | null;
}
