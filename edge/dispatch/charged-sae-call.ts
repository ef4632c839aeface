import { z } from "zod";
import { ApiError, toApiError } from "../../shared/errors/api-error.ts";
import { scopesOf } from "../limits/scopes.ts";
import type { ReplicaTarget } from "../ports/coordinator.ts";
import type { OpenedRequest, Price, RequestOutcome, TokenCounts } from "../ports/ledger.ts";
import { costNanoUsd, NO_TOKENS } from "../usage/cost.ts";
import { parseJson } from "./relay/refusal.ts";
import { callSae, type SaeAnswer, type SaeCall, type SaeCallDeps } from "./sae-calls.ts";
import type { DispatcherDeps } from "./settings.ts";

export type ChargedSaeCallDeps = SaeCallDeps & Pick<DispatcherDeps, "limits" | "ledger">;

/** Four bytes are about one token. */
const BYTES_PER_TOKEN = 4;
/** Every text of a ranking has a first token of its own. */
const MOST_FIRST_TOKENS = 64;

const usageSchema = z.looseObject({ usage: z.looseObject({ prompt_tokens: z.int().min(0) }) });

/**
 * A question about an SAE under the caller's limits. Whatever reaches an engine counts as a request; a ranking runs
 * texts through the model, so its tokens count and cost as a prompt's do, and it leaves a row. The engine tells the
 * tokens in its answer, and its host counts and reports them as those of any request. One that fails costs nothing.
 */
export async function chargedSaeCall(deps: ChargedSaeCallDeps, call: SaeCall): Promise<SaeAnswer> {
  const { limits, ledger, settings, clock } = deps;
  const { requestId, principal, receivedAtMs, model } = call;
  const computes = call.method === "POST";
  const { price, priceVersion } = settings.priceOf(model.id);
  const opened: OpenedRequest = {
    requestId,
    clientRequestId: call.clientRequestId,
    atMs: receivedAtMs,
    account: principal.account,
    project: principal.project,
    keyId: principal.keyId,
    model: model.id,
    band: call.band,
    price,
    priceVersion,
  };
  const elapsedMs = (): number => Math.max(0, clock.nowMs() - receivedAtMs);
  const decision = await limits.reserve({
    account: principal.account,
    requestId,
    atMs: receivedAtMs,
    model: model.id,
    scopes: scopesOf(principal),
    inputTokensEstimate: computes ? Math.ceil(call.bodyText.length / BYTES_PER_TOKEN) : 0,
    outputTokensLimit: 0,
    costBoundNanoUsd: computes ? costBound(call.bodyText, price).toString() : "0",
  });
  if (decision.kind === "refused") {
    if (computes) ledger.shed(opened, elapsedMs());
    const { code, message, retryAfterSeconds } = decision;
    throw new ApiError(code, { message, retryAfterSeconds });
  }
  const state: { target: ReplicaTarget | null } = { target: null };
  const begun = (target: ReplicaTarget): void => {
    if (!computes) return;
    ledger.open(opened);
    state.target = target;
    const { backend, replicaId: replica, epoch } = target;
    ledger.attemptStarted({ requestId, attempt: 1, backend, replica, epoch });
  };
  const settle = (outcome: RequestOutcome, counts: TokenCounts, uncounted: boolean): void => {
    settleReservation(deps, call, { counts, price, uncounted });
    if (!computes) return;
    if (state.target === null) {
      if (outcome === "shed") ledger.shed(opened, elapsedMs());
      return;
    }
    ledger.settle({
      requestId,
      outcome,
      attempts: [
        {
          requestId,
          attempt: 1,
          counts,
          exactness: "exact",
          unbilledReason: outcome === "completed" ? null : "failed_before_first_token",
          awaitReport: false,
        },
      ],
      backend: state.target.backend,
      steeringHash: null,
      queueMs: null,
      ttftMs: null,
      tpotMs: null,
      totalMs: elapsedMs(),
    });
  };
  try {
    const answer = await callSae(deps, call, begun);
    const isAnswered = answer.status < 400;
    settle(
      isAnswered ? "completed" : "failed",
      isAnswered && computes ? countsOf(answer) : NO_TOKENS,
      isCallersFault(answer.status),
    );
    return answer;
  } catch (thrown) {
    settle(outcomeOf(call, toApiError(thrown)), NO_TOKENS, false);
    throw thrown;
  }
}

function settleReservation(
  { limits, logger }: Pick<ChargedSaeCallDeps, "limits" | "logger">,
  { requestId, principal }: SaeCall,
  { counts, price, uncounted }: { readonly counts: TokenCounts; readonly price: Price; readonly uncounted: boolean },
): void {
  limits
    .settle({
      account: principal.account,
      reservationId: requestId,
      totalTokens: counts.promptTokens,
      completionTokens: 0,
      costNanoUsd: costNanoUsd(counts, price).toString(),
      ...(uncounted ? { uncounted } : {}),
    })
    .catch((thrown: unknown) => logger.error("a reservation could not be settled", { request_id: requestId }, thrown));
}

const costBound = (bodyText: string, price: Price): bigint =>
  BigInt(new TextEncoder().encode(bodyText).length + MOST_FIRST_TOKENS) * BigInt(price.promptPer1k);

function countsOf(answer: SaeAnswer): TokenCounts {
  const read = usageSchema.safeParse(parseJson(new TextDecoder().decode(answer.body)));
  return read.success ? { ...NO_TOKENS, promptTokens: read.data.usage.prompt_tokens } : NO_TOKENS;
}

const isCallersFault = (status: number): boolean => status >= 400 && status < 500 && status !== 429;

function outcomeOf(call: SaeCall, { status }: ApiError): RequestOutcome {
  if (call.gone.aborted) return "cancelled";
  return status === 429 || status === 503 ? "shed" : "failed";
}
