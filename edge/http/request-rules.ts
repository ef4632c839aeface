import { ApiError } from "../../shared/errors/api-error.ts";
import type { InferenceRoute, RequestEnvelope } from "../../shared/openai/request-envelope.ts";
import { streamOptionsFault } from "../../shared/openai/sampling.ts";
import { activationRequestsOf } from "../../shared/steering/activations.ts";
import { profileFault } from "../../shared/steering/profile.ts";
import { effectiveSets, type SteeringOfSae } from "../../shared/steering/steering-set.ts";
import type { ServedModel } from "../ports/fleet.ts";

/** What a route's path alone settles, before the model is known. Throws a 400 that names the member. */
export function checkEnvelope(route: InferenceRoute, envelope: RequestEnvelope): void {
  const fault = profileFault(envelope);
  if (fault !== null) throw new ApiError("invalid_steering", fault);
  const { max_tokens: older, max_completion_tokens: newer } = envelope;
  if (typeof older === "number" && typeof newer === "number" && older !== newer) {
    throw new ApiError("invalid_value", {
      message: "'max_tokens' and 'max_completion_tokens' differ; send one of them.",
      param: "max_tokens",
    });
  }
  if (route !== "/v1/embeddings" && streamOptionsFault(envelope)) {
    throw new ApiError("invalid_value", {
      message: "'stream_options' is only allowed with 'stream': true.",
      param: "stream_options",
    });
  }
  const senses = activationRequestsOf(envelope.return_sae_activations).length > 0;
  if (route === "/v1/embeddings") {
    const steers = effectiveSets(envelope.steering).length > 0 ? "steering" : envelope.profile ? "profile" : null;
    if (steers !== null) {
      throw new ApiError("invalid_steering", { message: "Embeddings cannot be steered.", param: steers });
    }
    if (senses) {
      throw new ApiError("sae_activations_refused", {
        message: "Activations cannot be returned for embeddings.",
        param: "return_sae_activations",
      });
    }
  }
  if (senses && (envelope.n ?? 1) > 1) {
    throw new ApiError("sae_activations_refused", {
      message: "Activations can be returned for one choice only: 'n' must be 1.",
      param: "n",
    });
  }
}

/**
 * The SAEs that a request names, against those that replicas of the model hold. While no replica is ready nothing can
 * be said: the request waits or is refused further on.
 */
export function checkSaes(envelope: RequestEnvelope, model: ServedModel): void {
  if (model.readyReplicas === 0) return;
  checkProfile(envelope.profile ?? null, model);
  const steering = envelope.steering ?? null;
  const sets = Array.isArray(steering) ? steering : steering === null ? [] : [steering];
  sets.forEach((set, place) => {
    if (set.features.length === 0) return;
    const path = Array.isArray(steering) ? `steering[${place}]` : "steering";
    checkSet(set, path, model);
  });
  for (const { request, param } of activationRequestsOf(envelope.return_sae_activations)) {
    const size = featuresOf(request.sae_id ?? null, `${param}.sae_id`, model);
    checkIndices(request.features ?? [], size, (place) => `${param}.features[${place}]`);
  }
}

function checkProfile(name: string | null, model: ServedModel): void {
  const names = (model.profiles ?? []).map((profile) => profile.name);
  if (name === null || names.includes(name)) return;
  throw new ApiError("invalid_steering", {
    message: `No replica of '${model.id}' has the profile that was asked for. Available: ${names.length === 0 ? "none" : names.join(", ")}.`,
    param: "profile",
  });
}

function checkSet(set: SteeringOfSae, path: string, model: ServedModel): void {
  const size = featuresOf(set.sae_id ?? null, `${path}.sae_id`, model);
  const indices = set.features.map(({ index }) => index);
  checkIndices(indices, size, (place) => `${path}.features[${place}].index`);
}

/** How many features the SAE has; null where the request leaves it open which one is meant. */
function featuresOf(saeId: string | null, param: string, model: ServedModel): number | null {
  const names = [...new Set(model.saes.map(({ id }) => id))];
  if (names.length === 0 || (saeId !== null && !names.includes(saeId))) {
    throw new ApiError("sae_not_available", {
      message:
        names.length === 0
          ? `No replica of '${model.id}' holds an SAE.`
          : `No replica of '${model.id}' holds the SAE that was asked for. Available: ${names.join(", ")}.`,
      param,
    });
  }
  const meant = saeId ?? (names.length === 1 ? names[0] : undefined);
  const sizes = model.saes.filter(({ id }) => id === meant).map(({ d_sae }) => d_sae);
  return sizes.length === 0 ? null : Math.max(...sizes);
}

function checkIndices(indices: readonly number[], size: number | null, paramAt: (place: number) => string): void {
  const place = size === null ? -1 : indices.findIndex((index) => index >= size);
  if (place === -1) return;
  throw new ApiError("invalid_feature_index", {
    message: `Feature ${indices[place]} does not exist: the SAE has ${size} features, counted from 0.`,
    param: paramAt(place),
  });
}
