import { ApiError, toApiError } from "../../shared/errors/api-error.ts";
import { REQUEST_ID_HEADER, ROUTE_HEADER } from "../../shared/protocol/headers.ts";
import { hashOfReceipt } from "../../shared/steering/receipt.ts";
import { scopesOf } from "../limits/scopes.ts";
import type { AdmitDecision, GrantReason, ReplicaTarget, UsedTokens } from "../ports/coordinator.ts";
import type { EndedAttempt, OpenedRequest, RequestOutcome } from "../ports/ledger.ts";
import type { ResponseWriter } from "../ports/response-writer.ts";
import { CAPABILITY_OF_ROUTE } from "../routing/capabilities.ts";
import { costNanoUsd, NO_TOKENS } from "../usage/cost.ts";
import { endedAttempt } from "./account/attempt-account.ts";
import { costBoundNanoUsd, tokenBounds, type TokenBounds } from "./outgoing/bounds.ts";
import { ClientAnswer } from "./relay/client-answer.ts";
import { headerText } from "./outgoing/header-text.ts";
import type { DecisionLog } from "./account/decision-log.ts";
import { HeldClaim } from "./held-claim.ts";
import type { InferenceRequest } from "./inference-request.ts";
import { QueueProgress } from "./queue-progress.ts";
import { rateLimitHeaders } from "./account/rate-limit-headers.ts";
import { isCallersFault, refusalOf, type Refusal } from "./relay/refusal.ts";
import { Relay } from "./relay/relay.ts";
import type { RelayResult } from "./relay/relay-result.ts";
import type { HeldReservation, Reservations } from "./account/reservations.ts";
import type { RetryBudgets } from "./retry-budget.ts";
import type { DispatcherDeps, PricedModel } from "./settings.ts";
import { admitRequest, requestWeight, upstreamRequest, type RequestWeight } from "./outgoing/upstream-request.ts";

/** Failed replicas are started again less and less often, or when the operator has mended what stands against it. */
const FAILED_RETRY_AFTER_SECONDS = 30;

interface MadeAttempt {
  readonly target: ReplicaTarget;
  readonly result: RelayResult;
  readonly why: GrantReason | null;
}

/** How a request ended before or after its attempts; what is told to the client comes last. */
interface Ending {
  readonly outcome: RequestOutcome;
  readonly refusal: Refusal | null;
}

/** What all requests of a dispatcher have in common. */
export interface SharedState {
  readonly reservations: Reservations;
  readonly retries: RetryBudgets;
  readonly decisions: DecisionLog;
}

/** One request from its limits to its last byte. Everything it takes is given back on every way out. */
export class RequestRun {
  readonly #deps: DispatcherDeps;
  readonly #reservations: Reservations;
  readonly #retries: RetryBudgets;
  readonly #decisions: DecisionLog;
  readonly #request: InferenceRequest;
  readonly #writer: ResponseWriter;
  readonly #answer: ClientAnswer;
  readonly #bounds: TokenBounds;
  readonly #priced: PricedModel;
  readonly #receivedAtMs: number;
  readonly #attempts: MadeAttempt[] = [];
  #weight: RequestWeight | null = null;
  #relay: Relay | null = null;
  #admitting = false;
  #clientGone = false;
  #expired = false;
  #opened = false;
  #queueMs: number | null = null;
  #unreachedSinceMs: number | null = null;

  constructor(deps: DispatcherDeps, shared: SharedState, request: InferenceRequest, writer: ResponseWriter) {
    const { clock, settings } = deps;
    this.#deps = deps;
    this.#reservations = shared.reservations;
    this.#retries = shared.retries;
    this.#decisions = shared.decisions;
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
  }

  async run(): Promise<void> {
    const { clock, settings, metrics } = this.#deps;
    const incapable = this.#incapable();
    if (incapable !== null) {
      this.#answer.fail(refusalOf(incapable));
      return;
    }
    metrics.requestStarted();
    this.#retries.requestStarted(this.#request.model.pool);
    this.#writer.onClosed(() => this.#clientLeft());
    const { totalMs } = settings.timeouts;
    const cancelTotal = totalMs === 0 ? () => undefined : clock.after(totalMs, () => this.#timeIsUp());
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
    const { requestId, principal } = this.#request;
    const decision = await limits.reserve({
      account: principal.account,
      requestId,
      scopes: scopesOf(principal),
      inputTokensEstimate: this.#bounds.inputTokensEstimate,
      outputTokensLimit: this.#bounds.outputTokensLimit,
      costBoundNanoUsd: costBoundNanoUsd(this.#bounds, this.#priced.price).toString(),
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
      ending = await this.#attemptUntilAnswered();
    } catch (thrown) {
      this.#settle({ outcome: "failed", refusal: null }, held);
      throw thrown;
    }
    this.#settle(ending, held);
    this.#tell(ending);
    return ending.outcome;
  }

  async #attemptUntilAnswered(): Promise<Ending> {
    const { id, failure } = this.#request.model;
    if (failure !== null) {
      const message = `No replica of '${id}' works: ${failure}.`;
      const error = new ApiError("no_replica_available", { message, retryAfterSeconds: FAILED_RETRY_AFTER_SECONDS });
      return { outcome: "shed", refusal: refusalOf(error) };
    }
    const tried: string[] = [];
    for (;;) {
      const attempt = this.#attempts.length + 1;
      const decision = await this.#admit(attempt, tried);
      if (decision.kind !== "claimed") return this.#notAdmitted(decision, tried);
      const { claim } = decision;
      if (tried.length > 0) this.#retries.spend(this.#request.model.pool);
      const held = new HeldClaim(this.#deps, this.#request.model.pool, claim);
      let result: RelayResult | null = null;
      try {
        if (this.#clientGone || this.#expired) return this.#gaveUp();
        result = await this.#attempt(claim.target, attempt);
      } finally {
        held.release(result?.claimResult ?? "cancelled", result?.busyForMs ?? null, this.#usedBy(result));
      }
      this.#attempts.push({ target: claim.target, result, why: decision.why ?? null });
      if (this.#clientGone && result.kind === "failed") return { outcome: "cancelled", refusal: null };
      if (result.kind === "completed" || result.kind === "cancelled") return { outcome: result.kind, refusal: null };
      this.#logFailure(claim.target, attempt, result);
      // Nothing was sent and the fleet takes it out: this is a search for a machine, not another try of the request.
      if (result.unreached && this.#mayLookOn() && (await this.#takenOut(claim.target))) continue;
      if (!result.retryable || !this.#mayTryAgain(attempt))
        return { outcome: result.expired ? "expired" : "failed", refusal: result.refusal };
      tried.push(claim.target.key);
    }
  }

  #keepDecision(outcome: RequestOutcome): void {
    const { requestId, principal, model, band } = this.#request;
    const attempts = this.#attempts.map(({ target, result, why }) => ({
      replica: target.key,
      why,
      failure: result.kind === "failed" ? (result.refusal?.body.error.code ?? "failed") : null,
    }));
    this.#decisions.add(
      { requestId, project: principal.project, model: model.id, band, queueMs: this.#queueMs, outcome, attempts },
      this.#deps.clock.monotonicMs(),
    );
  }

  #mayTryAgain(attempt: number): boolean {
    return attempt <= this.#deps.settings.retries && this.#retries.allows(this.#request.model.pool);
  }

  #mayLookOn(): boolean {
    const nowMs = this.#deps.clock.monotonicMs();
    this.#unreachedSinceMs ??= nowMs;
    return nowMs - this.#unreachedSinceMs < this.#deps.settings.withoutMachineMs;
  }

  /** Whether the machine gets no work until it is heard of again. */
  async #takenOut({ kind, backend, epoch }: ReplicaTarget): Promise<boolean> {
    if (kind !== "host") return false;
    try {
      return await this.#deps.fleet.unreachable(backend, epoch);
    } catch (thrown) {
      this.#deps.logger.error("the fleet could not be told of a host that is away", { host: backend }, thrown);
      return false;
    }
  }

  /** Exact where the machine told; else what came, and the prompt once it had begun to answer. */
  #usedBy(result: RelayResult | null): UsedTokens | null {
    if (result === null || result.nothingComputed) return null;
    if (result.usage !== null) return result.usage;
    if (!result.answering) return null;
    return {
      promptTokens: this.#bounds.inputTokensEstimate,
      cachedTokens: 0,
      completionTokens: result.tokenEvents,
    };
  }

  async #admit(attempt: number, tried: readonly string[]): Promise<AdmitDecision> {
    if (this.#clientGone || this.#expired) return { kind: "cancelled" };
    const { coordinator, clock } = this.#deps;
    // Here, where a failure is answered: tools nested too deeply for a serialiser make it throw.
    this.#weight ??= requestWeight(this.#request, this.#bounds);
    const request = admitRequest(this.#request, this.#weight, attempt, tried);
    const fromMs = clock.monotonicMs();
    const progress = this.#progress();
    this.#admitting = true;
    try {
      // A waiting admit dies with the object that held it; its place is kept by the time of first arrival.
      return await coordinator.admit(request).catch(() => coordinator.admit(request));
    } finally {
      this.#admitting = false;
      progress?.stop();
      if (attempt === 1) this.#queueMs = clock.monotonicMs() - fromMs;
    }
  }

  #progress(): QueueProgress | null {
    const { coordinator, clock, settings } = this.#deps;
    const { progress, requestId, model } = this.#request;
    if (!progress || this.#request.envelope.stream !== true) return null;
    return new QueueProgress({
      clock,
      everyMs: settings.progressEveryMs,
      prospect: async () => (await coordinator.prospect?.(model.pool, requestId)) ?? null,
      tell: (comment) => this.#answer.comment(comment),
    });
  }

  #notAdmitted(decision: Exclude<AdmitDecision, { kind: "claimed" }>, tried: readonly string[]): Ending {
    if (decision.kind === "cancelled") return this.#gaveUp();
    const last = this.#attempts.at(-1)?.result.refusal ?? null;
    // Whoever could answer was tried: the reason is the last machine's, not that none is left.
    if (last !== null && tried.length > 0) return { outcome: "failed", refusal: last };
    if (decision.kind === "refused") {
      const { code, retryAfterSeconds } = decision;
      return { outcome: "shed", refusal: refusalOf(new ApiError(code, { retryAfterSeconds })) };
    }
    const { available } = decision;
    const message =
      available.length === 0
        ? `No replica of '${this.#request.model.id}' holds an SAE.`
        : `No replica of '${this.#request.model.id}' holds the SAE that was asked for. Available: ${available.join(", ")}.`;
    return {
      outcome: "failed",
      refusal: refusalOf(new ApiError("sae_not_available", { message, param: "steering.sae_id" })),
    };
  }

  #gaveUp(): Ending {
    return this.#expired && !this.#clientGone
      ? { outcome: "expired", refusal: refusalOf(new ApiError("total_timeout")) }
      : { outcome: "cancelled", refusal: null };
  }

  async #attempt(target: ReplicaTarget, attempt: number): Promise<RelayResult> {
    const { clock, ledger, settings, upstream } = this.#deps;
    const { requestId, envelope } = this.#request;
    const outgoing = await upstreamRequest(this.#deps, this.#request, target, attempt);
    this.#open();
    ledger.attemptStarted({
      requestId,
      attempt,
      backend: target.backend,
      replica: target.replicaId,
      epoch: target.epoch,
    });
    this.#answer.setHeaders({ [ROUTE_HEADER]: `${headerText(target.key)};attempts=${attempt}` });
    const relay = new Relay({
      clock,
      answer: this.#answer,
      target,
      isStream: envelope.stream === true,
      clientWantsUsage: envelope.stream_options?.include_usage === true,
      timeouts: settings.timeouts,
    });
    this.#relay = relay;
    try {
      const running = relay.run(upstream, outgoing);
      // Both may have come while the request was signed.
      if (this.#clientGone) relay.cancel();
      else if (this.#expired) relay.expire("total_timeout");
      return await running;
    } finally {
      this.#relay = null;
    }
  }

  #clientLeft(): void {
    this.#clientGone = true;
    this.#relay?.cancel();
    this.#leaveQueue();
  }

  #timeIsUp(): void {
    this.#expired = true;
    this.#relay?.expire("total_timeout");
    this.#leaveQueue();
  }

  #leaveQueue(): void {
    if (!this.#admitting) return;
    const { requestId, model } = this.#request;
    this.#deps.coordinator
      .cancel(model.pool, requestId)
      .catch((thrown: unknown) =>
        this.#deps.logger.error("a waiting request could not be cancelled", { request_id: requestId }, thrown),
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
    if (last?.awaitReport === true) this.#reservations.settleByReport(held, own);
    else this.#reservations.settle(held, own);
    if (!this.#opened) {
      // Nothing was sent: a refusal for want of machines is a row of zeros, the caller's own fault is none.
      if (ending.outcome === "shed") ledger.shed(this.#openedRequest(), this.#elapsedMs());
      if (ending.outcome === "shed" || ending.outcome === "failed") return;
      this.#open();
    }
    // A machine that refuses counts the request among those it ended and reports it, so the attempt has its row of
    // zeros for the proof even where the fault was the caller's.
    const answered = this.#attempts.at(-1);
    ledger.settle({
      requestId: this.#request.requestId,
      outcome: ending.outcome,
      attempts,
      backend: answered?.target.backend ?? null,
      steeringHash: hashOfReceipt(answered?.result.receipt ?? ""),
      queueMs: this.#queueMs,
      ...this.#pace(),
      totalMs: this.#elapsedMs(),
    });
  }

  #tell({ outcome, refusal }: Ending): void {
    if (refusal !== null) this.#answer.fail(refusal);
    else if (outcome === "completed") this.#answer.finish(this.#attempts.at(-1)?.result.tail ?? "");
    else this.#answer.drop();
  }

  #endedAttempts(): EndedAttempt[] {
    return this.#attempts.map(({ target, result }, place) =>
      endedAttempt({
        requestId: this.#request.requestId,
        attempt: place + 1,
        target,
        result,
        inputTokensEstimate: this.#bounds.inputTokensEstimate,
        superseded: place < this.#attempts.length - 1,
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
    const result = this.#attempts.at(-1)?.result;
    const first = result?.firstTokenAtMs ?? null;
    const last = result?.lastTokenAtMs ?? null;
    if (result === undefined || first === null || last === null) return { ttftMs: null, tpotMs: null };
    const tokens = result.usage?.completionTokens ?? result.tokenEvents;
    return { ttftMs: first - this.#receivedAtMs, tpotMs: tokens > 1 ? (last - first) / (tokens - 1) : null };
  }

  #elapsedMs(): number {
    return Math.max(0, this.#deps.clock.monotonicMs() - this.#receivedAtMs);
  }

  #logFailure(target: ReplicaTarget, attempt: number, result: RelayResult): void {
    const refused = result.claimResult === "refused";
    this.#deps.logger[refused ? "info" : "warn"](refused ? "a machine refused a request" : "an attempt failed", {
      request_id: this.#request.requestId,
      attempt,
      backend: target.backend,
      replica: target.replicaId,
      code: result.refusal?.body.error.code,
      detail: result.detail,
    });
  }
}
