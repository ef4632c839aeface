import { ApiError } from "../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../shared/errors/zod-error.ts";
import { plainEnvelope } from "../../shared/openai/plain-envelope.ts";
import {
  requestEnvelopeSchema,
  type InferenceRoute,
  type RequestEnvelope,
} from "../../shared/openai/request-envelope.ts";
import { IDEMPOTENCY_KEY_HEADER, PROGRESS_HEADER, STRICT_HEADER, VIA_HEADER } from "../../shared/protocol/headers.ts";
import type { EdgeDeps } from "../deps.ts";
import type { InferenceRequest } from "../dispatch/inference-request.ts";
import { UNKNOWN_MODEL } from "../monitoring/edge-metrics.ts";
import type { Principal } from "../ports/principal.ts";
import { bandOf } from "./band.ts";
import { checkMediaAddresses } from "./media-rules.ts";
import { crossOriginHeaders } from "./middleware/cross-origin.ts";
import type { RequestIdentity } from "./middleware/request-identity.ts";
import type { JsonObjectBody } from "./read-json.ts";
import { checkEnvelope, checkSaes } from "./request-rules.ts";
import { viaWith } from "./via.ts";

/** A call of one of the three routes that reach an engine, whichever server it came in through. */
export interface InferenceCall {
  readonly route: InferenceRoute;
  readonly identity: RequestIdentity;
  readonly principal: Principal;
  /** From `viaOf`. */
  readonly via: string;
  readonly body: JsonObjectBody;
  /** By any case; repeated ones joined by a comma. */
  readonly header: (name: string) => string | undefined;
}

export interface CheckedInference {
  readonly request: InferenceRequest;
  /** For the answer, whatever it will be, beside those of dispatch. */
  readonly headers: Readonly<Record<string, string>>;
}

/** The edges that a request came through, this one included. Throws where it has been here before; needs no body. */
export function viaOf(deps: Pick<EdgeDeps, "signer" | "settings">, header: InferenceCall["header"]): string {
  return viaWith(deps.signer.publicKeys()[0]?.kid ?? deps.settings.edge, header(VIA_HEADER));
}

/** Every check that needs no machine. Throws the ApiError that refuses the call. */
export async function checkedInference(deps: EdgeDeps, call: InferenceCall): Promise<CheckedInference> {
  const { route, identity, principal, via, body, header } = call;
  const { settings } = deps;
  const envelope = envelopeOf(body.object);
  checkEnvelope(route, envelope);
  if (route === "/v1/chat/completions") checkMediaAddresses(body.object["messages"]);
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
  const { requestId, clientRequestId, receivedAtMs } = identity;
  return {
    request: {
      requestId,
      clientRequestId,
      route,
      envelope,
      bodyText: body.text,
      principal,
      model,
      band: bandOf(header(settings.bandHeader), principal.highestBand, settings),
      strict: header(STRICT_HEADER) ?? null,
      progress: header(PROGRESS_HEADER)?.trim().toLowerCase() === "comments",
      returning: returningOf(header(RETRY_COUNT_HEADER)),
      via,
      session: header(settings.sessionHeader)?.slice(0, MAX_SESSION_LENGTH) || null,
      idempotencyKey: idempotencyKeyOf(header(IDEMPOTENCY_KEY_HEADER)),
      receivedAtMs,
    },
    headers: crossOriginHeaders(header("origin")),
  };
}

function envelopeOf(object: JsonObjectBody["object"]): RequestEnvelope {
  const plain = plainEnvelope(object);
  if (plain !== null) return plain;
  const result = requestEnvelopeSchema.safeParse(object);
  if (!result.success) throw apiErrorOfZod(result.error);
  return result.data;
}

/** How the official OpenAI clients count their repeats of one call. */
const RETRY_COUNT_HEADER = "x-stainless-retry-count";

const returningOf = (count: string | undefined): boolean | null => (count === undefined ? null : Number(count) > 0);

/** Of a session id, characters: what is longer is cut. */
const MAX_SESSION_LENGTH = 256;

const MAX_IDEMPOTENCY_KEY_LENGTH = 255;

function idempotencyKeyOf(header: string | undefined): string | null {
  if (header === undefined) return null;
  const text = header.trim();
  if (/^[\x21-\x7e]+$/.test(text) && text.length <= MAX_IDEMPOTENCY_KEY_LENGTH) return text;
  throw new ApiError("invalid_value", {
    message: `An Idempotency-Key is 1 to ${MAX_IDEMPOTENCY_KEY_LENGTH} printable ASCII characters without spaces.`,
    param: "Idempotency-Key",
  });
}

/** A caller's text inside our own sentence: bounded. */
const shown = (name: string): string => (name.length > 128 ? `${name.slice(0, 128)}…` : name);
