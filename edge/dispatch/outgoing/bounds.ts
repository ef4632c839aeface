import type { InferenceRoute, RequestEnvelope } from "../../../shared/openai/request-envelope.ts";
import type { ServedModel } from "../../ports/fleet.ts";
import type { Price } from "../../ports/ledger.ts";

/** Characters of JSON text to a token, as a rough mean for prose. Only a guess: exact counts come from the engine. */
const CHARACTERS_PER_TOKEN = 4;
/** Assumed where neither the request nor the model says how long an answer may get. */
const UNKNOWN_OUTPUT_TOKENS = 4_096;

export interface TokenBounds {
  readonly inputTokensEstimate: number;
  /** All choices together; null when the request states no limit. */
  readonly outputTokensLimit: number | null;
  /** The most that can come back: the request's limit, else the model's, else what the window leaves. */
  readonly outputTokensBound: number;
}

export function tokenBounds(
  route: InferenceRoute,
  envelope: RequestEnvelope,
  bodyText: string,
  model: ServedModel,
): TokenBounds {
  const inputTokensEstimate = Math.ceil(bodyText.length / CHARACTERS_PER_TOKEN);
  if (route === "/v1/embeddings") return { inputTokensEstimate, outputTokensLimit: 0, outputTokensBound: 0 };
  const choices = (envelope.n ?? 1) * promptsOf(route, envelope);
  const explicit = envelope.max_completion_tokens ?? envelope.max_tokens ?? null;
  const left = model.contextLength === null ? null : Math.max(1, model.contextLength - inputTokensEstimate);
  const most = Math.min(model.maxOutput ?? Infinity, left ?? Infinity);
  const ofModel = most === Infinity ? UNKNOWN_OUTPUT_TOKENS : most;
  return {
    inputTokensEstimate,
    outputTokensLimit: explicit === null ? null : explicit * choices,
    outputTokensBound: Math.min(explicit ?? ofModel, most) * choices,
  };
}

/** Texts or lists of token ids in one request, each with choices of its own. */
function promptsOf(route: InferenceRoute, envelope: RequestEnvelope): number {
  const prompt = route === "/v1/completions" ? envelope["prompt"] : undefined;
  return Array.isArray(prompt) && typeof prompt[0] !== "number" ? Math.max(1, prompt.length) : 1;
}

/** The most a request can cost, nano-dollars: nothing cached and every token used. */
export function costBoundNanoUsd(bounds: TokenBounds, price: Price): bigint {
  return (
    BigInt(bounds.inputTokensEstimate) * BigInt(Math.max(price.promptPer1k, price.cachedPer1k)) +
    BigInt(bounds.outputTokensBound) * BigInt(price.completionPer1k)
  );
}
