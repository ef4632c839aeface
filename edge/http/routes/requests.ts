import { ApiError } from "../../../shared/errors/api-error.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { DecidedAttempt } from "../../dispatch/account/decision-log.ts";
import type { GrantReason } from "../../ports/coordinator.ts";
import type { HttpContext } from "../environment.ts";

/** Why a request went where it went, for its own project, for an hour. Another's is not told from one that never was. */
export function requestRoute(deps: EdgeDeps) {
  return (c: HttpContext): Response => {
    const decision = deps.decisionOf?.(c.req.param("id") ?? "", c.get("principal").project) ?? null;
    if (decision === null) throw new ApiError("request_not_found");
    const {
      requestId,
      atMs,
      askedModel,
      model,
      band,
      queueMs,
      ttftMs,
      totalMs,
      outcome,
      refusal,
      refusedUnder,
      attempts,
    } = decision;
    return c.json({
      object: "request",
      id: requestId,
      created: Math.floor(atMs / 1_000),
      asked_model: askedModel,
      model,
      band,
      queue_ms: queueMs,
      ttft_ms: ttftMs,
      total_ms: totalMs,
      outcome,
      refusal,
      refused_under: refusedUnder,
      attempts: attempts.map(attemptJson),
    });
  };
}

function attemptJson({ attempt, model, replica, end, failure, why }: DecidedAttempt) {
  return { attempt, model, replica, end, failure, why: why === null ? null : reasonJson(why) };
}

function reasonJson({ band, saturation, ceiling, by, promptBytes, candidates }: GrantReason) {
  return {
    band,
    saturation,
    ceiling,
    by,
    prompt_bytes: promptBytes,
    candidates: candidates.map(({ replica, seconds, terms, matchedBytes }) => ({
      replica,
      seconds,
      terms,
      matched_bytes: matchedBytes,
      match_ratio: promptBytes === 0 ? 0 : matchedBytes / promptBytes,
    })),
  };
}
