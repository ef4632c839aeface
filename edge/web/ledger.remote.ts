import { ApiError } from "../../shared/errors/api-error.ts";
import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";
import type { Ledger, OpenedRequest, SettledRequest, StartedAttempt } from "../ports/ledger.ts";

/** A call of the Ledger's port as it crosses to whoever keeps the ledger. */
export type LedgerCall =
  | { readonly kind: "open"; readonly request: OpenedRequest }
  | { readonly kind: "attempt"; readonly attempt: StartedAttempt }
  | { readonly kind: "settle"; readonly settled: SettledRequest }
  | { readonly kind: "shed"; readonly request: OpenedRequest; readonly totalMs: number };

/** Keeps the ledger elsewhere. Idempotent by request id, as the ledger is. */
export interface LedgerKeeper {
  apply(calls: readonly LedgerCall[]): Promise<void>;
}

/**
 * The Ledger's port for one request, in front of a ledger that is kept elsewhere. Calls cross in their order, those of
 * one turn together. One that does not arrive is sent again with the next; whoever made this adapter waits for
 * `written` before the request may be forgotten.
 */
export class RemoteLedger implements Ledger {
  readonly #keeper: LedgerKeeper;
  readonly #hasRoom: boolean;
  readonly #unsent: LedgerCall[] = [];
  #sending: Promise<void> | null = null;
  #failure: unknown = null;

  /** `hasRoom` as the keeper said when the request began. */
  constructor(keeper: LedgerKeeper, hasRoom: boolean) {
    this.#keeper = keeper;
    this.#hasRoom = hasRoom;
  }

  open(request: OpenedRequest): void {
    if (!this.#hasRoom) throw new ApiError("usage_journal_full", { retryAfterSeconds: 10 });
    this.#send({ kind: "open", request });
  }

  attemptStarted(attempt: StartedAttempt): void {
    this.#send({ kind: "attempt", attempt });
  }

  settle(settled: SettledRequest): void {
    this.#send({ kind: "settle", settled });
  }

  shed(request: OpenedRequest, totalMs: number): void {
    this.#send({ kind: "shed", request, totalMs });
  }

  acceptReport(_host: string, _ended: readonly EndedRequest[], _counters: readonly HourCounter[]): never {
    throw new Error("reports go to the ledger's keeper itself");
  }

  askedOf(_host: string): never {
    throw new Error("reports go to the ledger's keeper itself");
  }

  /** Resolves when the keeper has everything; rejects when something could not be brought to it, tried anew here too. */
  async written(): Promise<void> {
    await this.#sending;
    if (this.#unsent.length > 0) await this.#drain();
    if (this.#unsent.length > 0) throw this.#failure;
  }

  #send(call: LedgerCall): void {
    this.#unsent.push(call);
    this.#sending ??= this.#drain().finally(() => {
      this.#sending = null;
    });
  }

  /** Never rejects: what is not taken stays, in its order. */
  async #drain(): Promise<void> {
    // Behind the rest of this turn, whose calls then go along.
    await Promise.resolve();
    while (this.#unsent.length > 0) {
      const calls = [...this.#unsent];
      try {
        // A keeper that was moved refuses once and is there again.
        await this.#keeper.apply(calls).catch(() => this.#keeper.apply(calls));
      } catch (thrown) {
        this.#failure = thrown;
        return;
      }
      this.#unsent.splice(0, calls.length);
    }
  }
}
