import { ApiError } from "../../../shared/errors/api-error.ts";
import type { Fleet, ServedModel } from "../../ports/fleet.ts";
import { CAPABILITY_OF_ROUTE, featuresOf } from "../../routing/capabilities.ts";
import type { InferenceRequest } from "../inference-request.ts";
import { costBoundNanoUsd, tokenBounds, type TokenBounds } from "../outgoing/bounds.ts";
import { saeNeeds } from "../outgoing/upstream-request.ts";
import type { DispatchSettings, PricedModel } from "../settings.ts";

/** One model that may answer a request, with what that means for bounds and money. */
export interface ChainLink {
  readonly model: ServedModel;
  readonly bounds: TokenBounds;
  readonly priced: PricedModel;
}

/** The model that was asked for, then those that may answer in its stead, in order. */
export type ModelChain = readonly [ChainLink, ...ChainLink[]];

/**
 * Who may answer. A model that does not do this kind of request at all is left out; where none is left, the caller's
 * mistake is thrown as an ApiError. What steers or senses means the features of one model, and vectors the space of one:
 * neither has another.
 */
export async function modelChain(
  request: InferenceRequest,
  settings: DispatchSettings,
  fleet: Pick<Fleet, "resolve">,
): Promise<ModelChain> {
  const [first, ...others] = await candidates(request, fleet);
  const fault = incapable(request, first);
  const able = [first, ...others].filter((model) => incapable(request, model) === null);
  const [asked, ...more] = able.map((model) => linkOf(request, model, settings));
  if (asked === undefined) throw fault ?? new ApiError("internal_error");
  return [asked, ...more];
}

/** The same without asking anybody, for a model that has no fallbacks. */
export function soleLink(request: InferenceRequest, settings: DispatchSettings): ModelChain {
  const fault = incapable(request, request.model);
  if (fault !== null) throw fault;
  return [linkOf(request, request.model, settings)];
}

export function hasFallbacks({ model }: InferenceRequest): boolean {
  return (model.fallbacks ?? []).length > 0;
}

/** The most that any of them can cost. */
export function dearestBoundNanoUsd(request: InferenceRequest, chain: ModelChain): bigint {
  let most = 0n;
  for (const { model, priced } of chain) {
    const bound = costBoundNanoUsd(model === request.model ? request : { ...request, model }, priced.price);
    if (bound > most) most = bound;
  }
  return most;
}

async function candidates(
  request: InferenceRequest,
  fleet: Pick<Fleet, "resolve">,
): Promise<readonly [ServedModel, ...ServedModel[]]> {
  const { model, route } = request;
  if (route === "/v1/embeddings") return [model];
  const { saeIds, needsSomeSae } = saeNeeds(request);
  if (saeIds.length > 0 || needsSomeSae) return [model];
  const others = await Promise.all((model.fallbacks ?? []).map((name) => fleet.resolve(name)));
  return [model, ...others.filter((other) => other !== null)];
}

function linkOf(
  { route, envelope, bodyText }: InferenceRequest,
  model: ServedModel,
  settings: DispatchSettings,
): ChainLink {
  return { model, bounds: tokenBounds(route, envelope, bodyText, model), priced: settings.priceOf(model.id) };
}

/** A model that does not do this kind of request at all: the caller's mistake, which takes no limit. */
function incapable({ route, envelope }: InferenceRequest, model: ServedModel): ApiError | null {
  const { id, capabilities, lacks = [] } = model;
  if (capabilities.length > 0 && !capabilities.includes(CAPABILITY_OF_ROUTE[route]))
    return new ApiError("invalid_value", { message: `The model '${id}' does not answer ${route}.`, param: "model" });
  const missing = lacks.length === 0 ? undefined : featuresOf(envelope).find((feature) => lacks.includes(feature));
  if (missing === undefined) return null;
  return missing === "tools"
    ? new ApiError("invalid_value", { message: `The model '${id}' takes no tools.`, param: "tools" })
    : new ApiError("invalid_value", { message: `The model '${id}' takes no images.`, param: "messages" });
}
