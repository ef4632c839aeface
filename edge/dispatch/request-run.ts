import { ApiError, toApiError } from "../../shared/errors/api-error.ts";
import { REQUEST_ID_HEADER } from "../../shared/protocol/headers.ts";
import { hashOfReceipt } from "../../shared/steering/receipt.ts";
import { scopesOf } from "../limits/scopes.ts";
import type { EndedAttempt, OpenedRequest, RequestOutcome } from "../ports/ledger.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";
import { costNanoUsd, NO_TOKENS } from "../usage/cost.ts";
import { endedAttempt } from "./account/attempt-account.ts";
import { decidedAttempt, type DecidedAttempt, type DecisionLog } from "./account/decision-log.ts";
import { rateLimitHeaders } from "./account/rate-limit-headers.ts";
import type { HeldReservation, Reservations } from "./account/reservations.ts";
import type { Hedges } from "./attempts/hedging.ts";
import { tpotOf, type Ending } from "./attempts/made-attempt.ts";
import {
  dearestBoundNanoUsd,
  hasFallbacks,
  modelChain,
  soleLink,
  type ChainLink,
  type ModelChain,
} from "./attempts/model-chain.ts";
import { RequestAttempts } from "./attempts/request-attempts.ts";
import type { InferenceRequest } from "./inference-request.ts";
import { ClientAnswer } from "./relay/client-answer.ts";
import { isCallersFault, refusalOf, type Refusal } from "./relay/refusal.ts";
import type { RetryBudgets } from "./retry-budget.ts";
import type { DispatcherDeps } from "./settings.ts";

/** What all requests of a dispatcher have in common. */
export interface SharedState {
  readonly reservations: Reservations;
  readonly retries: RetryBudgets;
  readonly hedges: Hedges;
  readonly decisions: DecisionLog | null;
}

/** One request from its limits to its last byte. Everything it takes is given back on every way out. */
export class RequestRun {
  readonly #deps: DispatcherDeps;
  readonly #shared: SharedState;
  readonly #request: InferenceRequest;
  readonly #writer: ResponseWriter;
  readonly #answer: ClientAnswer;
  readonly #receivedAtMs: number;
  readonly #attempts: RequestAttempts;
  /** As which model the row was opened; null before that. */
  #opened: ChainLink | null = null;
  /** What the client was told instead of an answer. */
  #refusal: Refusal | null = null;

  constructor(deps: DispatcherDeps, shared: SharedState, request: InferenceRequest, writer: ResponseWriter) {
    const { clock, settings } = deps;
    this.#deps = deps;
    this.#shared = shared;
    this.#request = request;
    this.#writer = writer;
    this.#receivedAtMs = clock.monotonicMs() - Math.max(0, clock.nowMs() - request.receivedAtMs);
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
      hedges: shared.hedges,
      request,
      answer: this.#answer,
      open: (link) => this.#open(link),
    });
  }

  async run(): Promise<void> {
    const { clock, settings, metrics } = this.#deps;
    const chain = await this.#chain();
    if (chain === null) return;
    metrics.requestStarted();
    this.#shared.retries.requestStarted(this.#request.model.pool);
    this.#writer.onClosed(() => this.#attempts.clientLeft());
    const { totalMs } = settings.timeouts;
    const cancelTotal = totalMs === 0 ? () => undefined : clock.after(totalMs, () => this.#attempts.timeIsUp());
    let outcome: RequestOutcome = "failed";
    try {
      outcome = await this.#withReservation(chain);
    } catch (thrown) {
      const error = toApiError(thrown);
      if (error.code === "internal_error")
        this.#deps.logger.error("a request failed unexpectedly", { request_id: this.#request.requestId }, thrown);
      this.#fail(refusalOf(error));
    } finally {
      cancelTotal();
      const { ttftMs, tpotMs } = this.#pace();
      const attempts = this.#attempts.made.map(decidedAttempt);
      this.#keepDecision(outcome, ttftMs, attempts);
      metrics.requestEnded({ model: this.#modelUsed(), outcome, ttftMs, tpotMs, attempts });
    }
  }

  /** Null where none can do this kind of request at all, which was told: it takes no limit. */
  async #chain(): Promise<ModelChain | null> {
    const { settings, fleet } = this.#deps;
    try {
      if (!hasFallbacks(this.#request)) return soleLink(this.#request, settings);
      return await modelChain(this.#request, settings, fleet);
    } catch (thrown) {
      const error = toApiError(thrown);
      if (error.code === "internal_error")
        this.#deps.logger.error("a model could not be looked up", { request_id: this.#request.requestId }, thrown);
      this.#answer.fail(refusalOf(error));
      return null;
    }
  }

  async #withReservation(chain: ModelChain): Promise<RequestOutcome> {
    const { limits, ledger } = this.#deps;
    const { requestId, principal, receivedAtMs, model } = this.#request;
    const decision = await limits.reserve({
      account: principal.account,
      requestId,
      atMs: receivedAtMs,
      model: model.id,
      scopes: scopesOf(principal),
      inputTokensEstimate: chain[0].bounds.inputTokensEstimate,
      outputTokensLimit: chain[0].bounds.outputTokensLimit,
      costBoundNanoUsd: dearestBoundNanoUsd(this.#request, chain).toString(),
    });
    this.#answer.setHeaders(rateLimitHeaders(decision.state));
    if (decision.kind === "refused") {
      const { code, message, retryAfterSeconds } = decision;
      ledger.shed(this.#openedRequest(chain[0]), this.#elapsedMs());
      this.#fail(refusalOf(new ApiError(code, { message, retryAfterSeconds })));
      return "shed";
    }
    this.#shared.hedges.requestStarted(model.id);
    const held = { requestId, account: principal.account, reservationId: decision.reservationId };
    let ending: Ending;
    try {
      ending = await this.#attempts.untilAnswered(chain);
    } catch (thrown) {
      this.#settle({ outcome: "failed", refusal: null }, held, chain[0]);
      throw thrown;
    }
    this.#settle(ending, held, chain[0]);
    this.#tell(ending);
    return ending.outcome;
  }

  #keepDecision(outcome: RequestOutcome, ttftMs: number | null, attempts: readonly DecidedAttempt[]): void {
    const { requestId, principal, model, band, receivedAtMs } = this.#request;
    this.#shared.decisions?.add(
      {
        requestId,
        project: principal.project,
        atMs: receivedAtMs,
        askedModel: model.id,
        model: this.#modelUsed(),
        band,
        queueMs: this.#attempts.queueMs,
        ttftMs,
        totalMs: this.#elapsedMs(),
        outcome,
        refusal: this.#refusal?.body.error.code ?? null,
        refusedUnder: this.#attempts.refusedUnder,
        attempts,
      },
      this.#deps.clock.monotonicMs(),
    );
  }

  /** Gives the reservation back and writes the ledger's row, before the client hears the end. */
  #settle(ending: Ending, held: HeldReservation, asked: ChainLink): void {
    const { ledger } = this.#deps;
    const attempts = this.#endedAttempts();
    const last = attempts.at(-1);
    const counts = last === undefined || last.unbilledReason !== null ? NO_TOKENS : last.counts;
    const uncounted = ending.refusal !== null && isCallersFault(ending.refusal) && counts === NO_TOKENS;
    const { price } = (this.#attempts.made.at(-1)?.link ?? asked).priced;
    const own = { counts, costNanoUsd: costNanoUsd(counts, price), uncounted };
    if (last?.awaitReport === true) this.#shared.reservations.settleByReport(held, own);
    else this.#shared.reservations.settle(held, own);
    if (this.#opened === null) {
      // Nothing was sent: a refusal for want of machines is a row of zeros, the caller's own fault is none.
      if (ending.outcome === "shed") ledger.shed(this.#openedRequest(asked), this.#elapsedMs());
      if (ending.outcome === "shed" || ending.outcome === "failed") return;
      this.#open(asked);
    }
    // A machine that refuses counts the request among those it ended and reports it, so the attempt has its row of
    // zeros for the proof even where the fault was the caller's.
    const answered = this.#attempts.made.at(-1);
    const { ttftMs, tpotMs } = this.#pace();
    ledger.settle({
      requestId: this.#request.requestId,
      outcome: ending.outcome,
      attempts,
      backend: answered?.target.backend ?? null,
      steeringHash: hashOfReceipt(answered?.result.receipt ?? ""),
      queueMs: this.#attempts.queueMs,
      ttftMs,
      tpotMs,
      totalMs: this.#elapsedMs(),
    });
  }

  #tell({ outcome, refusal }: Ending): void {
    if (refusal !== null) this.#fail(refusal);
    else if (outcome === "completed") this.#answer.finish(this.#attempts.made.at(-1)?.result.tail ?? "");
    else this.#answer.drop();
  }

  #fail(refusal: Refusal): void {
    this.#refusal = refusal;
    this.#answer.fail(refusal);
  }

  #endedAttempts(): EndedAttempt[] {
    const { made } = this.#attempts;
    return made.map(({ attempt, link, target, result, lostRace }, place) =>
      endedAttempt({
        requestId: this.#request.requestId,
        attempt,
        target,
        result,
        inputTokensEstimate: link.bounds.inputTokensEstimate,
        superseded: place < made.length - 1,
        lostRace,
      }),
    );
  }

  /** Once, and only when something is about to be sent: from here on there is a row. */
  #open(link: ChainLink): ChainLink {
    if (this.#opened !== null) return this.#opened;
    this.#deps.ledger.open(this.#openedRequest(link));
    this.#opened = link;
    return link;
  }

  #openedRequest({ model, priced: { price, priceVersion } }: ChainLink): OpenedRequest {
    const { requestId, clientRequestId, receivedAtMs, principal, band } = this.#request;
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
      price,
      priceVersion,
    };
  }

  #pace(): { readonly ttftMs: number | null; readonly tpotMs: number | null } {
    const result = this.#attempts.made.at(-1)?.result;
    const first = result?.firstTokenAtMs ?? null;
    const last = result?.lastTokenAtMs ?? null;
    if (result === undefined || first === null || last === null) return { ttftMs: null, tpotMs: null };
    return { ttftMs: first - this.#receivedAtMs, tpotMs: tpotOf(result, first, last) };
  }

  /** Of those that were asked the last, which answered if any did. */
  #modelUsed(): string {
    return this.#attempts.made.at(-1)?.link.model.id ?? this.#request.model.id;
  }

  #elapsedMs(): number {
    return Math.max(0, this.#deps.clock.monotonicMs() - this.#receivedAtMs);
  }
}
