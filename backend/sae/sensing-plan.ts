import { ApiError } from "../../shared/errors/api-error.ts";
import {
  ACTIVATIONS_MEMBER,
  activationRequestsOf,
  DEFAULT_ACTIVATION_TOP_K,
  MAX_ACTIVATION_ENTRIES,
  type ActivationPositions,
  type ActivationRequest,
  type ActivationRequests,
} from "../../shared/steering/activations.ts";
import { checkFeatureIndex, resolveSae, type AttachedSae } from "./attached-sae.ts";

/** What a request may sense, known before generation. */
export interface SensingBounds {
  readonly promptTokens: number;
  /** Largest number of tokens that may be sampled. */
  readonly maxTokens: number;
  readonly layerCount: number;
}

export interface SensingRequestPlan<Sae extends AttachedSae = AttachedSae> {
  readonly sae: Sae;
  readonly readPoint: "pre_steering" | "post_steering";
  /** Half open; -1 has no end. */
  readonly fromPosition: number;
  readonly toPosition: number;
  /** The columns asked for, or null for the largest active ones. */
  readonly features: Int32Array | null;
  /** Values kept per position. */
  readonly topK: number;
  /** Only the last row that went through the model is wanted; which one that is shows at the end. */
  readonly lastOnly: boolean;
  /** Largest number of (position, feature) pairs of the answer. */
  readonly mostEntries: number;
  /** Rows are told as they come. */
  readonly stream: boolean;
}

/** What one request senses; one plan per SAE. */
export interface SensingSet<Sae extends AttachedSae = AttachedSae> {
  readonly plans: readonly SensingRequestPlan<Sae>[];
  /** The caller asked with a list and gets one. */
  readonly asList: boolean;
  /** First position whose row must be computed. */
  readonly fromPosition: number;
}

/** All that a request senses, or null. The size of the answer is bounded before generation, over all SAEs. */
export function planSensingSet<Sae extends AttachedSae>(
  requests: ActivationRequests | null | undefined,
  attached: readonly Sae[],
  bounds: SensingBounds & { readonly streams: boolean },
): SensingSet<Sae> | null {
  const asked = activationRequestsOf(requests);
  if (asked.length === 0) return null;
  const plans = asked.map(({ request, param }) => {
    if (request.stream === true && !bounds.streams) {
      throw new ApiError("invalid_value", {
        message: `'${param}.stream' is only allowed with 'stream': true.`,
        param: `${param}.stream`,
      });
    }
    return planSensing(request, attached, bounds, param);
  });
  plans.forEach(({ sae, readPoint }, place) => {
    const first = plans.findIndex((other) => other.sae.id === sae.id && other.readPoint === readPoint);
    if (first === place) return;
    throw new ApiError("sae_activations_refused", {
      message: `${sae.id} is asked for twice at the same read point.`,
      param: asked[place]?.param ?? ACTIVATIONS_MEMBER,
    });
  });
  const entries = plans.reduce((sum, plan) => sum + plan.mostEntries, 0);
  if (entries > MAX_ACTIVATION_ENTRIES) {
    throw new ApiError("sae_activations_refused", {
      message: `The activations may be ${entries} entries; at most ${MAX_ACTIVATION_ENTRIES} are returned. Ask for fewer positions or values, or set a token limit.`,
      param: ACTIVATIONS_MEMBER,
    });
  }
  return {
    plans,
    asList: Array.isArray(requests),
    fromPosition: Math.min(...plans.map(({ fromPosition }) => fromPosition)),
  };
}

/**
 * Rows that may be sensed are 0 to prompt + max - 2: the last sampled token never goes through the model. The answer's
 * size is bounded before generation. Throws an ApiError that names the member at fault.
 */
export function planSensing<Sae extends AttachedSae>(
  request: ActivationRequest,
  attached: readonly Sae[],
  bounds: SensingBounds,
  param: string = ACTIVATIONS_MEMBER,
): SensingRequestPlan<Sae> {
  const sae = resolveSae(attached, request.sae_id, `${param}.sae_id`);
  const features =
    request.features === null || request.features === undefined ? null : listed(sae, request.features, param);
  const topK = request.top_k ?? features?.length ?? DEFAULT_ACTIVATION_TOP_K;
  const range = rangeOf(request.positions ?? "last", bounds, `${param}.positions`);
  refuseLastLayerPrompt(sae, range, bounds, `${param}.positions`);
  const rows = range.lastOnly ? 1 : Math.max(0, range.end - range.from);
  const perRow = features === null ? topK : Math.min(topK, features.length);
  if (rows * perRow > MAX_ACTIVATION_ENTRIES) {
    throw new ApiError("sae_activations_refused", {
      message: `${rows} positions times ${perRow} values may be ${rows * perRow} entries; at most ${MAX_ACTIVATION_ENTRIES} are returned. Ask for fewer positions or values, or set a token limit.`,
      param,
    });
  }
  return {
    sae,
    readPoint: request.read_point ?? "post_steering",
    fromPosition: range.from,
    toPosition: range.open ? -1 : range.end,
    features,
    topK,
    lastOnly: range.lastOnly,
    mostEntries: rows * perRow,
    stream: request.stream ?? false,
  };
}

function listed(sae: AttachedSae, indices: readonly number[], param: string): Int32Array {
  const seen = new Set<number>();
  indices.forEach((index, place) => {
    const member = `${param}.features[${place}]`;
    checkFeatureIndex(sae, index, member);
    if (seen.has(index)) {
      throw new ApiError("invalid_value", { message: `Feature ${index} is named twice.`, param: member });
    }
    seen.add(index);
  });
  return Int32Array.from(indices);
}

interface Range {
  readonly from: number;
  readonly end: number;
  /** Runs to wherever generation ends. */
  readonly open: boolean;
  readonly lastOnly: boolean;
}

function rangeOf(positions: ActivationPositions, { promptTokens, maxTokens }: SensingBounds, param: string): Range {
  const end = promptTokens + maxTokens - 1;
  if (positions === "last") return { from: promptTokens - 1, end, open: true, lastOnly: true };
  if (positions === "prompt") return { from: 0, end: promptTokens, open: false, lastOnly: false };
  if (positions === "completion") return { from: promptTokens, end, open: true, lastOnly: false };
  if (positions === "all") return { from: 0, end, open: true, lastOnly: false };
  if (positions.start >= positions.end) {
    throw new ApiError("invalid_value", {
      message: `'${param}': start must be less than end.`,
      param,
    });
  }
  if (positions.start >= end) {
    throw new ApiError("invalid_value", {
      message: `'${param}.start' is ${positions.start}, but this request has positions 0 to ${end - 1} only.`,
      param: `${param}.start`,
    });
  }
  return { from: positions.start, end: Math.min(positions.end, end), open: false, lastOnly: false };
}

/** After the last block only rows that ask for logits are kept: of the prompt that is its last token. */
function refuseLastLayerPrompt(sae: AttachedSae, range: Range, bounds: SensingBounds, param: string): void {
  if (sae.layer < bounds.layerCount - 1 || range.from >= bounds.promptTokens - 1) return;
  throw new ApiError("sae_activations_refused", {
    message: `${sae.id} reads after the last block, where prompt positions are not kept; ask for 'completion' or 'last'.`,
    param,
  });
}
