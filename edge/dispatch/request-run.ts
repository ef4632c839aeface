import { ApiError, toApiError } from "../../shared/errors/api-error.ts";
import { REQUEST_ID_HEADER } from "../../shared/protocol/headers.ts";
import { hashOfReceipt } from "../../shared/steering/receipt.ts";
import { scopesOf } from "../limits/scopes.ts";
import type { EndedAttempt, OpenedRequest, RequestOutcome } from "../ports/ledger.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";
import { CAPABILITY_OF_ROUTE } from "../routing/capabilities.ts";
import { costNanoUsd, NO_TOKENS } from "../usage/cost.ts";
import { endedAttempt } from "./account/attempt-account.ts";
import type { DecisionLog } from "./account/decision-log.ts";
import { rateLimitHeaders } from "./account/rate-limit-headers.ts";
import type { HeldReservation, Reservations } from "./account/reservations.ts";
import type { Ending } from "./attempts/made-attempt.ts";
import { RequestAttempts } from "./attempts/request-attempts.ts";
import type { InferenceRequest } from "./inference-request.ts";
import { costBoundNanoUsd, tokenBounds, type TokenBounds } from "./outgoing/bounds.ts";
import { ClientAnswer } from "./relay/client-answer.ts";
import { isCallersFault, refusalOf } from "./relay/refusal.ts";
import type { RetryBudgets } from "./retry-budget.ts";
import type { DispatcherDeps, PricedModel } from "./settings.ts";

/** What all requests of a dispatcher have in common. */
export interface SharedState {
  readonly reservations: Reservations;
  readonly retries: RetryBudgets;
  readonly decisions: DecisionLog;
}

/** One request from its limits to its last byte. Everything it takes is given back on every way out. */
export class RequestRun {
  readonly #deps: DispatcherDeps;
  readonly #shared: SharedState;
  readonly #request: InferenceRequest;
  readonly #writer: ResponseWriter;
  readonly #answer: ClientAnswer;
  readonly #bounds: TokenBounds;
  readonly #priced: PricedModel;
  readonly #receivedAtMs: number;
  readonly #attempts: RequestAttempts;
  #opened = false;

  constructor(deps: DispatcherDeps, shared: SharedState, request: InferenceRequest, writer: ResponseWriter) {
    const { clock, settings } = deps;
    this.#deps = deps;
    this.#shared = shared;
    this.#request = request;
    this.#writer = writer;
    this.#receivedAtMs = clock.monotonicMs() - Math.max(0, clock.nowMs() - request.receivedAtMs);
    this.#bounds = tokenBounds(request.route, request.envelope, request.bodyText, request.model);
    this.#priced = settings.priceOf(request.model.id);
    this.#answer = new ClientAnswer({
      writer,
      clock,
      isStream: request.envelope.stream === true,
      keepAliveMs: settings.keepAliveMs,
    });
    this.#answer.setHeaders({ [REQUEST_ID_HEADER]: request.requestId });
    this.#attempts = new RequestAttempts({
      deps,
      retries: shared.retries,
      request,
      bounds: this.#bounds,
      answer: this.#answer,
      open: () => this.#open(),
    });
  }

  async run(): Promise<void> {
    const { clock, settings, metrics } = this.#deps;
    const incapable = this.#incapable();
    if (incapable !== null) {
      this.#answer.fail(refusalOf(incapable));
      return;
    }
    metrics.requestStarted();
    this.#shared.retries.requestStarted(this.#request.model.pool);
    this.#writer.onClosed(() => this.#attempts.clientLeft());
    const { totalMs } = settings.timeouts;
    const cancelTotal = totalMs === 0 ? () => undefined : clock.after(totalMs, () => this.#attempts.timeIsUp());
    let outcome: RequestOutcome = "failed";
    try {
      outcome = await this.#withReservation();
    } catch (thrown) {
      const error = toApiError(thrown);
      if (error.code === "internal_error")
        this.#deps.logger.error("a request failed unexpectedly", { request_id: this.#request.requestId }, thrown);
      this.#answer.fail(refusalOf(error));
    } finally {
      cancelTotal();
      const { ttftMs, tpotMs } = this.#pace();
      this.#keepDecision(outcome);
      metrics.requestEnded({ model: this.#request.model.id, outcome, ttftMs, tpotMs });
    }
  }

  /** A model that does not do this kind of request at all: the caller's mistake, which takes no limit. */
  #incapable(): ApiError | null {
    const { model, route } = this.#request;
    const capability = CAPABILITY_OF_ROUTE[route];
    if (model.capabilities.length === 0 || model.capabilities.includes(capability)) return null;
    return new ApiError("invalid_value", {
      message: `The model '${model.id}' does not answer ${route}.`,
      param: "model",
    });
  }

  async #withReservation(): Promise<RequestOutcome> {
    const { limits, ledger } = this.#deps;
    const { requestId, principal, receivedAtMs, model } = this.#request;
    const decision = await limits.reserve({
      account: principal.account,
      requestId,
      atMs: receivedAtMs,
      model: model.id,
      scopes: scopesOf(principal),
      inputTokensEstimate: this.#bounds.inputTokensEstimate,
      outputTokensLimit: this.#bounds.outputTokensLimit,
      costBoundNanoUsd: costBoundNanoUsd(this.#request, this.#priced.price).toString(),
    });
    this.#answer.setHeaders(rateLimitHeaders(decision.state));
    if (decision.kind === "refused") {
      const { code, message, retryAfterSeconds } = decision;
      ledger.shed(this.#openedRequest(), this.#elapsedMs());
      this.#answer.fail(refusalOf(new ApiError(code, { message, retryAfterSeconds })));
      return "shed";
    }
    const held = { requestId, account: principal.account, reservationId: decision.reservationId };
    let ending: Ending;
    try {
      ending = await this.#attempts.untilAnswered();
    } catch (thrown) {
      this.#settle({ outcome: "failed", refusal: null }, held);
      throw thrown;
    }
    this.#settle(ending, held);
    this.#tell(ending);
    return ending.outcome;
  }

  #keepDecision(outcome: RequestOutcome): void {
    const { requestId, principal, model, band } = this.#request;
    const attempts = this.#attempts.made.map(({ target, result, why }) => ({
      replica: target.key,
      why,
      failure: result.kind === "failed" ? (result.refusal?.body.error.code ?? "failed") : null,
    }));
    this.#shared.decisions.add(
      {
        requestId,
        project: principal.project,
        model: model.id,
        band,
        queueMs: this.#attempts.queueMs,
        outcome,
        attempts,
      },
      this.#deps.clock.monotonicMs(),
    );
  }

  /** Gives the reservation back and writes the ledger's row, before the client hears the end. */
  #settle(ending: Ending, held: HeldReservation): void {
    const { ledger } = this.#deps;
    const attempts = this.#endedAttempts();
    const last = attempts.at(-1);
    const counts = last === undefined || last.unbilledReason !== null ? NO_TOKENS : last.counts;
    const uncounted = ending.refusal !== null && isCallersFault(ending.refusal) && counts === NO_TOKENS;
    const own = { counts, costNanoUsd: costNanoUsd(counts, this.#priced.price), uncounted };
    if (last?.awaitReport === true) this.#shared.reservations.settleByReport(held, own);
    else this.#shared.reservations.settle(held, own);
    if (!this.#opened) {
      // Nothing was sent: a refusal for want of machines is a row of zeros, the caller's own fault is none.
      if (ending.outcome === "shed") ledger.shed(this.#openedRequest(), this.#elapsedMs());
      if (ending.outcome === "shed" || ending.outcome === "failed") return;
      this.#open();
    }
    // A machine that refuses counts the request among those it ended and reports it, so the attempt has its row of
    // zeros for the proof even where the fault was the caller's.
    const answered = this.#attempts.made.at(-1);
    ledger.settle({
      requestId: this.#request.requestId,
      outcome: ending.outcome,
      attempts,
      backend: answered?.target.backend ?? null,
      steeringHash: hashOfReceipt(answered?.result.receipt ?? ""),
      queueMs: this.#attempts.queueMs,
      ...this.#pace(),
      totalMs: this.#elapsedMs(),
    });
  }

  #tell({ outcome, refusal }: Ending): void {
    if (refusal !== null) this.#answer.fail(refusal);
    else if (outcome === "completed") this.#answer.finish(this.#attempts.made.at(-1)?.result.tail ?? "");
    else this.#answer.drop();
  }

  #endedAttempts(): EndedAttempt[] {
    const { made } = this.#attempts;
    return made.map(({ attempt, target, result }, place) =>
      endedAttempt({
        requestId: this.#request.requestId,
        attempt,
        target,
        result,
        inputTokensEstimate: this.#bounds.inputTokensEstimate,
        superseded: place < made.length - 1,
      }),
    );
  }

  /** Once, and only when something is about to be sent: from here on there is a row. */
  #open(): void {
    if (this.#opened) return;
    this.#deps.ledger.open(this.#openedRequest());
    this.#opened = true;
  }

  #openedRequest(): OpenedRequest {
    const { requestId, clientRequestId, receivedAtMs, principal, model, band } = this.#request;
    const { account, project, keyId } = principal;
    return {
      requestId,
      clientRequestId,
      atMs: receivedAtMs,
      account,
      project,
      keyId,
      model: model.id,
      band,
      price: this.#priced.price,
      priceVersion: this.#priced.priceVersion,
    };
  }

  #pace(): { readonly ttftMs: number | null; readonly tpotMs: number | null } {
    const result = this.#attempts.made.at(-1)?.result;
    const first = result?.firstTokenAtMs ?? null;
    const last = result?.lastTokenAtMs ?? null;
    if (result === undefined || first === null || last === null) return { ttftMs: null, tpotMs: null };
    const tokens = result.usage?.completionTokens ?? result.tokenEvents;
    return { ttftMs: first - this.#receivedAtMs, tpotMs: tokens > 1 ? (last - first) / (tokens - 1) : null };
  }

  #elapsedMs(): number {
    return Math.max(0, this.#deps.clock.monotonicMs() - this.#receivedAtMs);
  }
}
