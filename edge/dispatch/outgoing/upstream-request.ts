import { STRICT_HEADER, VIA_HEADER } from "../../../shared/protocol/headers.ts";
import { activationRequestsOf } from "../../../shared/steering/activations.ts";
import { effectiveSets } from "../../../shared/steering/steering-set.ts";
import type { AdmitRequest, ReplicaTarget } from "../../ports/coordinator.ts";
import type { Price } from "../../ports/ledger.ts";
import type { UpstreamRequest } from "../../ports/upstream.ts";
import { CAPABILITY_OF_ROUTE, featuresOf } from "../../routing/capabilities.ts";
import { affinityOf } from "./affinity-of.ts";
import { bodySha256 } from "./body-sha256.ts";
import { writtenOutputTokens, type TokenBounds } from "./bounds.ts";
import type { InferenceRequest } from "../inference-request.ts";
import { contextNeed } from "./context-need.ts";
import { editedBody } from "./request-body.ts";
import type { DispatcherDeps } from "../settings.ts";

/** What a request asks of a replica, from its envelope. */
export function saeNeeds({
  envelope,
  model,
}: Pick<InferenceRequest, "envelope" | "model">): Pick<AdmitRequest, "saeIds" | "needsSomeSae"> {
  const { steering, return_sae_activations } = envelope;
  if ((envelope.profile ?? steering ?? return_sae_activations ?? null) === null) return NO_SAE;
  const profile = envelope.profile ?? null;
  const named = [
    // An unknown one needs some SAE: whatever machine gets it will say so.
    ...(profile === null ? [] : (model.profiles?.find(({ name }) => name === profile)?.saes ?? [null])),
    ...effectiveSets(envelope.steering).map(({ sae_id }) => sae_id ?? null),
    ...activationRequestsOf(envelope.return_sae_activations).map(({ request }) => request.sae_id ?? null),
  ];
  return {
    saeIds: [...new Set(named.filter((id) => id !== null))],
    needsSomeSae: named.includes(null),
  };
}

/** Of most requests. */
const NO_SAE = { saeIds: [], needsSomeSae: false } as const;

/** Longest answer that is counted on before it is there; most are shorter than their limit. */
const MOST_OUTPUT_EXPECTED = 1_024;

/** Of the request itself; the same for each of its attempts. */
export type RequestWeight = Pick<
  AdmitRequest,
  "inputTokens" | "outputTokens" | "session" | "prefix" | "features" | "context"
>;

export function requestWeight(request: InferenceRequest, bounds: TokenBounds): RequestWeight {
  const { envelope, bodyText, model } = request;
  const features = featuresOf(envelope);
  const context = contextNeed(envelope, bodyText, bounds, model);
  const { session, prefix } = affinityOf(request);
  const weight = {
    inputTokens: bounds.inputTokensEstimate,
    outputTokens: Math.min(bounds.outputTokensLimit ?? Infinity, bounds.outputTokensBound, MOST_OUTPUT_EXPECTED),
    session,
    prefix,
  };
  if (features.length === 0 && context === null) return weight;
  return { ...weight, ...(features.length === 0 ? {} : { features }), ...(context === null ? {} : { context }) };
}

export function admitRequest(
  request: InferenceRequest,
  weight: RequestWeight,
  attempt: number,
  excludedReplicas: readonly string[],
): AdmitRequest {
  const { saeIds, needsSomeSae } = saeNeeds(request);
  const { inputTokens, outputTokens, session, prefix, features, context } = weight;
  const made = {
    pool: request.model.pool,
    requestId: request.requestId,
    attempt,
    project: request.principal.project,
    band: request.band,
    arrivedAtMs: request.receivedAtMs,
    capability: CAPABILITY_OF_ROUTE[request.route],
    saeIds,
    needsSomeSae,
    excludedReplicas,
    bodyBytes: request.bodyText.length,
    returning: request.returning,
    inputTokens,
    outputTokens,
    session,
    prefix,
  };
  if (features === undefined && context === undefined) return made;
  return { ...made, ...(features === undefined ? {} : { features }), ...(context === undefined ? {} : { context }) };
}

const UTF8 = new TextEncoder();

/**
 * The request as it travels to one replica: the caller's bytes with minimal edits, and of headers only what the
 * machine needs. To a host it is signed; to an endpoint goes the operator's own key, never the caller's.
 */
export async function upstreamRequest(
  deps: Pick<DispatcherDeps, "signer" | "settings">,
  { request, price }: { readonly request: InferenceRequest; readonly price: Price },
  target: ReplicaTarget,
  attempt: number,
): Promise<UpstreamRequest> {
  const { route, envelope, bodyText, requestId, principal } = request;
  const { injectUsage, timeouts, endpointKey } = deps.settings;
  const maxOutput = writtenOutputTokens(request, price);
  const text = editedBody(bodyText, { route, envelope, backendModel: target.model, injectUsage, maxOutput });
  const body = UTF8.encode(text);
  const headers: Record<string, string> = {
    "content-type": "application/json",
    accept: envelope.stream === true ? "text/event-stream" : "application/json",
  };
  if (target.kind === "host") {
    const token = await deps.signer.sign({
      aud: target.backend,
      jti: `${requestId}.${attempt}`,
      method: "POST",
      path: route,
      body_sha256: await bodySha256(body),
      request_id: requestId,
      attempt,
      replica: target.replicaId,
      cache_salt: principal.project,
    });
    headers["authorization"] = `Bearer ${token}`;
    if (request.strict !== null) headers[STRICT_HEADER] = request.strict;
  } else {
    headers[VIA_HEADER] = request.via;
    const key = endpointKey(target.backend);
    if (key !== null) headers["authorization"] = `Bearer ${key}`;
  }
  return {
    url: `${target.url.replace(/\/+$/, "")}${route}`,
    method: "POST",
    headers,
    body,
    dialTimeoutMs: timeouts.dialMs,
  };
}
