import { ApiError } from "../../../shared/errors/api-error.ts";
import type { EdgeDeps } from "../../deps.ts";
import type { HttpContext } from "../environment.ts";

/** Why a request went where it went, for its own project, for an hour. Another's is not told from one that never was. */
export function requestRoute(deps: EdgeDeps) {
  return (c: HttpContext): Response => {
    const decision = deps.decisionOf?.(c.req.param("id") ?? "", c.get("principal").project) ?? null;
    if (decision === null)
      throw new ApiError("route_not_found", { message: "There is no such request, or none any more." });
    const { requestId, model, band, queueMs, outcome, attempts } = decision;
    return c.json({
      object: "request",
      id: requestId,
      model,
      band,
      queue_ms: queueMs,
      outcome,
      attempts: attempts.map(({ replica, why, failure }) => ({
        replica,
        failure,
        why:
          why === null
            ? null
            : {
                saturation: why.saturation,
                ceiling: why.ceiling,
                candidates: why.candidates.map(({ replica: name, seconds, matchedBytes }) => ({
                  replica: name,
                  seconds,
                  matched_bytes: matchedBytes,
                })),
              },
      })),
    });
  };
}
