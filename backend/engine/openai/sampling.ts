import { ApiError } from "../../../shared/errors/api-error.ts";
import { MAX_SEED } from "../../../shared/openai/limits.ts";
import type { SamplerOptions } from "../../native/binding.ts";
import type { Constraint } from "./chat-prompt.ts";
import type { EngineChatRequest, EngineCompletionRequest } from "./request-schemas.ts";

type SamplingRequest = Pick<
  EngineChatRequest | EngineCompletionRequest,
  | "temperature"
  | "top_p"
  | "top_k"
  | "min_p"
  | "seed"
  | "frequency_penalty"
  | "presence_penalty"
  | "repetition_penalty"
  | "logit_bias"
  | "allowed_token_ids"
>;

export interface SamplingContext {
  readonly vocabularySize: number;
  /** For requests that name no seed; 0 to 2^32 - 1. */
  readonly randomSeed: () => number;
  readonly constraint: Constraint;
}

/** OpenAI's defaults: temperature 1, nothing truncated, nothing penalised, a seed of its own for every answer. */
export function samplerOf(request: SamplingRequest, context: SamplingContext): SamplerOptions {
  return {
    seed: samplerSeed(request.seed ?? context.randomSeed()),
    temperature: request.temperature ?? 1,
    topK: request.top_k ?? 0,
    topP: request.top_p ?? 1,
    minP: request.min_p ?? 0,
    repeatPenalty: request.repetition_penalty ?? 1,
    frequencyPenalty: request.frequency_penalty ?? 0,
    presencePenalty: request.presence_penalty ?? 0,
    penaltyWindow: -1,
    logitBias: biasOf(request.logit_bias ?? {}, context.vocabularySize),
    allowedTokens: allowedTokens(request.allowed_token_ids ?? [], context.vocabularySize),
    ...context.constraint,
  };
}

/** The seed modulo 2^32: the sampler has 32 bits, OpenAI's seeds have 64. */
function samplerSeed(seed: number): number {
  const range = MAX_SEED + 1;
  return ((seed % range) + range) % range;
}

function biasOf(bias: Readonly<Record<string, number>>, vocabularySize: number): SamplerOptions["logitBias"] {
  return Object.entries(bias).map(([text, value]) => {
    const token = Number(text);
    if (token < vocabularySize) return { token, bias: value };
    throw new ApiError("invalid_value", {
      message: `'logit_bias': token ${token} is out of range; the vocabulary has ${vocabularySize} tokens.`,
      param: "logit_bias",
    });
  });
}

function allowedTokens(ids: readonly number[], vocabularySize: number): Int32Array {
  const place = ids.findIndex((id) => id >= vocabularySize);
  if (place < 0) return Int32Array.from(ids);
  throw new ApiError("invalid_value", {
    message: `'allowed_token_ids[${place}]' is out of range; the vocabulary has ${vocabularySize} tokens.`,
    param: `allowed_token_ids[${place}]`,
  });
}

/** Stop strings as a list; an empty list is as good as none. */
export function stopStringsOf(stop: string | readonly string[] | null | undefined): readonly string[] {
  if (stop === null || stop === undefined) return [];
  return typeof stop === "string" ? [stop] : stop;
}
