import { ApiError } from "../../shared/errors/api-error.ts";
import type { EndedRequest, HourCounter } from "../../shared/protocol/report.ts";
import type { Ledger, OpenedRequest, SettledRequest, StartedAttempt } from "../ports/ledger.ts";
import type { LedgerCall, LedgerObject } from "./ledger-object.ts";

/**
 * The Ledger's port for one request, in front of the object that keeps the ledger. Calls cross in their order, those
 * of one turn together; whoever made this adapter waits for `written` before the request may be forgotten.
 */
export class RemoteLedger implements Ledger {
  readonly #object: DurableObjectStub<LedgerObject>;
  readonly #hasRoom: boolean;
  #pending: LedgerCall[] = [];
  #sent: Promise<void> = Promise.resolve();

  /** `hasRoom` as the object said when the request began. */
  constructor(object: DurableObjectStub<LedgerObject>, hasRoom: boolean) {
    this.#object = object;
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
    throw new Error("reports go to the ledger's object itself");
  }

  askedOf(_host: string): never {
    throw new Error("reports go to the ledger's object itself");
  }

  /** Resolves when the object has everything in its journal; rejects when a call was lost. */
  async written(): Promise<void> {
    await this.#sent;
  }

  #send(call: LedgerCall): void {
    this.#pending.push(call);
    if (this.#pending.length > 1) return;
    this.#sent = this.#drain(this.#sent);
    // Whoever waits for `written` hears of it; until then it must not count as unhandled.
    this.#sent.catch(() => undefined);
  }

  /** After what was sent before. An object that was moved refuses once and is there again; after a second time `written` rejects. */
  async #drain(before: Promise<void>): Promise<void> {
    await before;
    const calls = this.#pending;
    this.#pending = [];
    await this.#object.apply(calls).catch(() => this.#object.apply(calls));
  }
}
