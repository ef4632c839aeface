import { ApiError } from "../../../shared/errors/api-error.ts";
import type { AdmitDecision, AdmitRequest, ReplicaTarget } from "../../ports/coordinator.ts";
import { placeOfLongest } from "../outgoing/context-need.ts";
import { admitRequest, requestWeight, type RequestWeight } from "../outgoing/upstream-request.ts";
import { isCallersFault, refusalOf } from "../relay/refusal.ts";
import type { RelayResult } from "../relay/relay-result.ts";
import { ClaimedAttempt } from "./claimed-attempt.ts";
import { hedgedAttempt } from "./hedged-attempt.ts";
import type { Ending, MadeAttempt } from "./made-attempt.ts";
import type { ChainLink } from "./model-chain.ts";
import { isOver, type RunContext } from "./run-context.ts";

/** Failed replicas are started again less and less often, or when the operator has mended what stands against it. */
const FAILED_RETRY_AFTER_SECONDS = 30;

/** How it went with one model of a request. */
export interface ModelEnding extends Ending {
  /** The client has nothing of an answer, and it was not its own fault: another model may be asked. */
  readonly elsewhere: boolean;
}

/** The attempts of a request with one model, on one machine after another. */
export class ModelAttempts {
  readonly #context: RunContext;
  readonly #link: ChainLink;
  readonly #tried: string[] = [];
  /** Of this model, retries among them. */
  #attempts = 0;
  #weight: RequestWeight | null = null;
  #unreachedSinceMs: number | null = null;

  constructor(context: RunContext, link: ChainLink) {
    this.#context = context;
    this.#link = link;
  }

  async untilAnswered(): Promise<ModelEnding> {
    const { deps, retries, state } = this.#context;
    const { id, failure, pool } = this.#link.model;
    if (failure !== null) {
      const message = `No replica of '${id}' works: ${failure}.`;
      const error = new ApiError("no_replica_available", { message, retryAfterSeconds: FAILED_RETRY_AFTER_SECONDS });
      return { outcome: "shed", refusal: refusalOf(error), elsewhere: true };
    }
    for (;;) {
      const request = this.#admitRequest();
      const decision = await this.#admit(request);
      if (decision.kind !== "claimed") return this.#notAdmitted(decision);
      const { claim, why = null } = decision;
      if (this.#tried.length > 0) retries.spend(pool);
      this.#attempts++;
      const { attempt } = request;
      state.begun = Math.max(state.begun, attempt);
      const made = await this.#made({ claim, why, attempt }, request);
      const last = made.at(-1);
      this.#context.made.push(...made);
      if (last === undefined) return { ...this.#gaveUp(), elsewhere: false };
      const { target, result } = last;
      if (state.clientGone && result.kind === "failed")
        return { outcome: "cancelled", refusal: null, elsewhere: false };
      if (result.kind !== "failed") return { outcome: result.kind, refusal: null, elsewhere: false };
      for (const one of made) if (one.result.kind === "failed") this.#logFailure(one);
      // Nothing was sent and the fleet takes it out: this is a search for a machine, not another try of the request.
      if (result.unreached && this.#mayLookOn() && (await this.#takenOut(target))) continue;
      const mayTryAgain = this.#attempts <= deps.settings.policyOf(id).retries && retries.allows(pool);
      if (!result.retryable || !mayTryAgain) return this.#failed(result);
      this.#tried.push(...made.map((one) => one.target.key));
    }
  }

  /** What was made of one claim: with a hedge it may be two, the one that counts last. */
  async #made(
    claimed: Pick<MadeAttempt, "why" | "attempt"> & Pick<Extract<AdmitDecision, { kind: "claimed" }>, "claim">,
    request: AdmitRequest,
  ): Promise<readonly MadeAttempt[]> {
    const context = this.#context;
    const link = this.#link;
    const { claim, why, attempt } = claimed;
    const mayHedge = context.deps.settings.policyOf(link.model.id).hedging && context.request.envelope.stream === true;
    if (mayHedge) {
      const excludedReplicas = [...this.#tried, claim.target.key];
      return hedgedAttempt({ context, link, claim, why, attempt, hedgeRequest: { ...request, excludedReplicas } });
    }
    const made = await new ClaimedAttempt({ context, link, claim, why, attempt, answer: context.answer }).run();
    return made === null ? [] : [made];
  }

  #admitRequest(): AdmitRequest {
    const { request, state, deps } = this.#context;
    const { model, bounds } = this.#link;
    const own = model === request.model ? request : { ...request, model };
    // Here, where a failure is answered: tools nested too deeply for a serialiser make it throw.
    this.#weight ??= requestWeight(own, bounds);
    const made = admitRequest(own, this.#weight, state.begun + 1, this.#tried);
    const { sloTtftMs } = deps.settings.policyOf(request.model.id);
    return sloTtftMs === null ? made : { ...made, sloTtftMs };
  }

  async #admit(request: AdmitRequest): Promise<AdmitDecision> {
    const { deps, wait, made, state } = this.#context;
    if (isOver(this.#context)) return { kind: "cancelled" };
    const fromMs = deps.clock.monotonicMs();
    try {
      return await wait.admit(request);
    } finally {
      if (made.length === 0) state.queueMs = (state.queueMs ?? 0) + deps.clock.monotonicMs() - fromMs;
    }
  }

  #failed(result: RelayResult): ModelEnding {
    const { expired, refusal, answering } = result;
    const elsewhere = !expired && !answering && (refusal === null || !isCallersFault(refusal));
    return { outcome: expired ? "expired" : "failed", refusal, elsewhere };
  }

  #mayLookOn(): boolean {
    const { clock, settings } = this.#context.deps;
    const nowMs = clock.monotonicMs();
    this.#unreachedSinceMs ??= nowMs;
    return nowMs - this.#unreachedSinceMs < settings.withoutMachineMs;
  }

  /** Whether the machine gets no work until it is heard of again. */
  async #takenOut({ kind, backend, epoch }: ReplicaTarget): Promise<boolean> {
    if (kind !== "host") return false;
    const { fleet, logger } = this.#context.deps;
    try {
      return await fleet.unreachable(backend, epoch);
    } catch (thrown) {
      logger.error("the fleet could not be told of a host that is away", { host: backend }, thrown);
      return false;
    }
  }

  #notAdmitted(decision: Exclude<AdmitDecision, { kind: "claimed" }>): ModelEnding {
    const { id } = this.#link.model;
    const last = this.#context.made.at(-1)?.result.refusal ?? null;
    // Whoever could answer was tried: the reason is the last machine's, not that none is left.
    const hasTried = last !== null && this.#tried.length > 0;
    switch (decision.kind) {
      case "cancelled":
        return { ...this.#gaveUp(), elsewhere: false };
      case "refused": {
        this.#context.state.refusedUnder = decision.under ?? null;
        if (hasTried) return { outcome: "failed", refusal: last, elsewhere: true };
        const { code, retryAfterSeconds } = decision;
        return { outcome: "shed", refusal: refusalOf(new ApiError(code, { retryAfterSeconds })), elsewhere: true };
      }
      case "sae_not_available": {
        if (hasTried) return { outcome: "failed", refusal: last, elsewhere: false };
        const { available } = decision;
        const message =
          available.length === 0
            ? `No replica of '${id}' holds an SAE.`
            : `No replica of '${id}' holds the SAE that was asked for. Available: ${available.join(", ")}.`;
        const error = new ApiError("sae_not_available", { message, param: "steering.sae_id" });
        return { outcome: "failed", refusal: refusalOf(error), elsewhere: false };
      }
      case "context_exceeded": {
        const least = this.#weight?.context?.leastPromptTokens ?? 0;
        const message = `The context of '${id}' is ${decision.contextLength} tokens, and the prompt has at least ${least}.`;
        const { route, envelope } = this.#context.request;
        const place = placeOfLongest(envelope);
        const param = place === null ? promptParam(route) : `${promptParam(route)}[${place}]`;
        const error = new ApiError("context_length_exceeded", { message, param });
        return { outcome: "failed", refusal: refusalOf(error), elsewhere: true };
      }
      default:
        return decision satisfies never;
    }
  }

  #gaveUp(): Ending {
    const { expired, clientGone } = this.#context.state;
    return expired && !clientGone
      ? { outcome: "expired", refusal: refusalOf(new ApiError("total_timeout")) }
      : { outcome: "cancelled", refusal: null };
  }

  #logFailure({ target, attempt, result }: MadeAttempt): void {
    const refused = result.claimResult === "refused";
    const { logger } = this.#context.deps;
    logger[refused ? "info" : "warn"](refused ? "a machine refused a request" : "an attempt failed", {
      request_id: this.#context.request.requestId,
      attempt,
      backend: target.backend,
      replica: target.replicaId,
      code: result.refusal?.body.error.code,
      detail: result.detail,
    });
  }
}

const promptParam = (route: RunContext["request"]["route"]): string =>
  route === "/v1/chat/completions" ? "messages" : route === "/v1/completions" ? "prompt" : "input";
