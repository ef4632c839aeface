import { ApiError } from "../../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../../shared/errors/zod-error.ts";
import { requestEnvelopeSchema, type InferenceRoute } from "../../../shared/openai/request-envelope.ts";
import { PROGRESS_HEADER, REQUEST_ID_HEADER, STRICT_HEADER, VIA_HEADER } from "../../../shared/protocol/headers.ts";
import type { EdgeDeps } from "../../deps.ts";
import { UNKNOWN_MODEL } from "../../monitoring/edge-metrics.ts";
import { bandOf } from "../band.ts";
import type { HttpContext } from "../environment.ts";
import { withHeaders } from "../headed-writer.ts";
import { crossOriginHeaders } from "../middleware/cross-origin.ts";
import { readJsonObject } from "../read-json.ts";
import { checkEnvelope, checkSaes } from "../request-rules.ts";
import { viaWith } from "../via.ts";

/** One of the three routes that reach an engine: every check that needs no machine, then dispatch. */
export function inferenceRoute(deps: EdgeDeps, route: InferenceRoute) {
  return async (c: HttpContext): Promise<Response> => {
    const via = viaWith(deps.signer.publicKeys()[0]?.kid ?? deps.settings.edge, c.req.header(VIA_HEADER));
    const { text, object } = await readJsonObject(c.req.raw, deps.settings.maxBodyBytes);
    const result = requestEnvelopeSchema.safeParse(object);
    if (!result.success) throw apiErrorOfZod(result.error);
    const envelope = result.data;
    checkEnvelope(route, envelope);
    const model = await deps.fleet.resolve(envelope.model);
    if (model === null) {
      deps.metrics.requestRefused(UNKNOWN_MODEL);
      // Clients never repeat a 404, and hosts report within a second or two.
      if (await deps.fleet.settling()) throw new ApiError("no_replica_available", { retryAfterSeconds: 2 });
      throw new ApiError("model_not_found", {
        message: `The model '${shown(envelope.model)}' does not exist or is not served here.`,
        param: "model",
      });
    }
    checkSaes(envelope, model);
    const principal = c.get("principal");
    const band = bandOf(c.req.header(deps.settings.bandHeader), principal.highestBand, deps.settings);
    const extra = { [REQUEST_ID_HEADER]: c.get("requestId"), ...crossOriginHeaders(c.req.header("origin")) };
    return deps.respond({ request: c.req.raw, bindings: c.env }, (writer) =>
      deps.dispatch.run(
        {
          requestId: c.get("requestId"),
          clientRequestId: c.get("clientRequestId"),
          route,
          envelope,
          bodyText: text,
          principal,
          model,
          band,
          strict: c.req.header(STRICT_HEADER) ?? null,
          progress: c.req.header(PROGRESS_HEADER)?.trim().toLowerCase() === "comments",
          returning: returningOf(c.req.header(RETRY_COUNT_HEADER)),
          via,
          session: c.req.header(deps.settings.sessionHeader)?.slice(0, MAX_SESSION_LENGTH) || null,
          receivedAtMs: c.get("receivedAtMs"),
        },
        withHeaders(writer, extra),
      ),
    );
  };
}

/** How the official OpenAI clients count their repeats of one call. */
const RETRY_COUNT_HEADER = "x-stainless-retry-count";

const returningOf = (count: string | undefined): boolean | null => (count === undefined ? null : Number(count) > 0);

/** Of a session id, characters: what is longer is cut. */
const MAX_SESSION_LENGTH = 256;

/** A caller's text inside our own sentence: bounded. */
const shown = (name: string): string => (name.length > 128 ? `${name.slice(0, 128)}…` : name);
