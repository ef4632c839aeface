import { ApiError } from "../../../shared/errors/api-error.ts";
import type { AdmitDecision, Claim, GrantReason, ReplicaTarget } from "../../ports/coordinator.ts";
import { HeldClaim } from "../held-claim.ts";
import type { InferenceRequest } from "../inference-request.ts";
import type { TokenBounds } from "../outgoing/bounds.ts";
import { admitRequest, requestWeight, type RequestWeight } from "../outgoing/upstream-request.ts";
import type { ClientAnswer } from "../relay/client-answer.ts";
import { refusalOf } from "../relay/refusal.ts";
import type { RelayResult } from "../relay/relay-result.ts";
import type { RetryBudgets } from "../retry-budget.ts";
import type { DispatcherDeps } from "../settings.ts";
import { usedBy, type Ending, type MadeAttempt } from "./made-attempt.ts";
import { PoolWait } from "./pool-wait.ts";
import { SentAttempt } from "./sent-attempt.ts";

/** Failed replicas are started again less and less often, or when the operator has mended what stands against it. */
const FAILED_RETRY_AFTER_SECONDS = 30;

export interface RequestAttemptsOptions {
  readonly deps: DispatcherDeps;
  readonly retries: RetryBudgets;
  readonly request: InferenceRequest;
  readonly bounds: TokenBounds;
  readonly answer: ClientAnswer;
  /** Called before anything is sent, perhaps several times. Throws when the ledger takes no request. */
  readonly open: () => void;
}

/** The attempts of one request, on one machine after another, until one answers or none may follow. */
export class RequestAttempts {
  readonly #options: RequestAttemptsOptions;
  readonly #wait: PoolWait;
  readonly #made: MadeAttempt[] = [];
  #weight: RequestWeight | null = null;
  #running: SentAttempt | null = null;
  #clientGone = false;
  #expired = false;
  #queueMs: number | null = null;
  #unreachedSinceMs: number | null = null;

  constructor(options: RequestAttemptsOptions) {
    const { deps, answer, request } = options;
    this.#options = options;
    const tellsProgress = request.progress && request.envelope.stream === true;
    this.#wait = new PoolWait({ deps, answer, tellsProgress });
  }

  /** Those that have ended, in order; the one that answered, if any did, is the last. */
  get made(): readonly MadeAttempt[] {
    return this.#made;
  }

  /** How long it waited for its first claim; null when it never waited. */
  get queueMs(): number | null {
    return this.#queueMs;
  }

  clientLeft(): void {
    this.#clientGone = true;
    this.#running?.cancel();
    this.#wait.leave();
  }

  timeIsUp(): void {
    this.#expired = true;
    this.#running?.expire();
    this.#wait.leave();
  }

  async untilAnswered(): Promise<Ending> {
    const { request, retries, deps } = this.#options;
    const { id, failure, pool } = request.model;
    if (failure !== null) {
      const message = `No replica of '${id}' works: ${failure}.`;
      const error = new ApiError("no_replica_available", { message, retryAfterSeconds: FAILED_RETRY_AFTER_SECONDS });
      return { outcome: "shed", refusal: refusalOf(error) };
    }
    const tried: string[] = [];
    for (;;) {
      const attempt = this.#made.length + 1;
      const decision = await this.#admit(attempt, tried);
      if (decision.kind !== "claimed") return this.#notAdmitted(decision, tried);
      const { claim } = decision;
      if (tried.length > 0) retries.spend(pool);
      const result = await this.#attempt(claim, attempt, decision.why ?? null);
      if (result === null) return this.#gaveUp();
      if (this.#clientGone && result.kind === "failed") return { outcome: "cancelled", refusal: null };
      if (result.kind === "completed" || result.kind === "cancelled") return { outcome: result.kind, refusal: null };
      this.#logFailure(claim.target, attempt, result);
      // Nothing was sent and the fleet takes it out: this is a search for a machine, not another try of the request.
      if (result.unreached && this.#mayLookOn() && (await this.#takenOut(claim.target))) continue;
      const mayTryAgain = attempt <= deps.settings.retries && retries.allows(pool);
      if (!result.retryable || !mayTryAgain)
        return { outcome: result.expired ? "expired" : "failed", refusal: result.refusal };
      tried.push(claim.target.key);
    }
  }

  async #admit(attempt: number, tried: readonly string[]): Promise<AdmitDecision> {
    if (this.#clientGone || this.#expired) return { kind: "cancelled" };
    const { deps, request, bounds } = this.#options;
    // Here, where a failure is answered: tools nested too deeply for a serialiser make it throw.
    this.#weight ??= requestWeight(request, bounds);
    const fromMs = deps.clock.monotonicMs();
    try {
      return await this.#wait.admit(admitRequest(request, this.#weight, attempt, tried));
    } finally {
      if (attempt === 1) this.#queueMs = deps.clock.monotonicMs() - fromMs;
    }
  }

  /** Null: it was given up before anything was sent. The claim is released once, however this ends. */
  async #attempt(claim: Claim, attempt: number, why: GrantReason | null): Promise<RelayResult | null> {
    const { deps, request, answer, bounds, open } = this.#options;
    const held = new HeldClaim(deps, request.model.pool, claim);
    let result: RelayResult | null = null;
    try {
      if (this.#clientGone || this.#expired) return null;
      this.#running = new SentAttempt({ deps, request, answer, target: claim.target, attempt, open });
      result = await this.#running.run();
    } finally {
      this.#running = null;
      const used = usedBy(result, bounds.inputTokensEstimate);
      held.release(result?.claimResult ?? "cancelled", result?.busyForMs ?? null, used);
    }
    this.#made.push({ attempt, target: claim.target, result, why });
    return result;
  }

  #mayLookOn(): boolean {
    const { clock, settings } = this.#options.deps;
    const nowMs = clock.monotonicMs();
    this.#unreachedSinceMs ??= nowMs;
    return nowMs - this.#unreachedSinceMs < settings.withoutMachineMs;
  }

  /** Whether the machine gets no work until it is heard of again. */
  async #takenOut({ kind, backend, epoch }: ReplicaTarget): Promise<boolean> {
    if (kind !== "host") return false;
    const { fleet, logger } = this.#options.deps;
    try {
      return await fleet.unreachable(backend, epoch);
    } catch (thrown) {
      logger.error("the fleet could not be told of a host that is away", { host: backend }, thrown);
      return false;
    }
  }

  #notAdmitted(decision: Exclude<AdmitDecision, { kind: "claimed" }>, tried: readonly string[]): Ending {
    if (decision.kind === "cancelled") return this.#gaveUp();
    const last = this.#made.at(-1)?.result.refusal ?? null;
    // Whoever could answer was tried: the reason is the last machine's, not that none is left.
    if (last !== null && tried.length > 0) return { outcome: "failed", refusal: last };
    if (decision.kind === "refused") {
      const { code, retryAfterSeconds } = decision;
      return { outcome: "shed", refusal: refusalOf(new ApiError(code, { retryAfterSeconds })) };
    }
    const { available } = decision;
    const { id } = this.#options.request.model;
    const message =
      available.length === 0
        ? `No replica of '${id}' holds an SAE.`
        : `No replica of '${id}' holds the SAE that was asked for. Available: ${available.join(", ")}.`;
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

  #logFailure(target: ReplicaTarget, attempt: number, result: RelayResult): void {
    const refused = result.claimResult === "refused";
    this.#options.deps.logger[refused ? "info" : "warn"](
      refused ? "a machine refused a request" : "an attempt failed",
      {
        request_id: this.#options.request.requestId,
        attempt,
        backend: target.backend,
        replica: target.replicaId,
        code: result.refusal?.body.error.code,
        detail: result.detail,
      },
    );
  }
}
