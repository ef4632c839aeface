import type { InferenceRoute, RequestEnvelope } from "../../../shared/openai/request-envelope.ts";
import type { ServedModel } from "../../ports/fleet.ts";
import type { Price } from "../../ports/ledger.ts";
import type { Principal } from "../../ports/principal.ts";
import type { InferenceRequest } from "../inference-request.ts";

/** Characters of JSON text to a token, as a rough mean for prose. Only a guess: exact counts come from the engine. */
const CHARACTERS_PER_TOKEN = 4;
/**
 * Assumed where neither the request nor the model says how long an answer may get, and written into the request where
 * money is limited.
 */
const UNKNOWN_OUTPUT_TOKENS = 4_096;

export interface TokenBounds {
  readonly inputTokensEstimate: number;
  /** All choices together, none longer than the window; null when the request states no limit. */
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
  const choices = choicesOf(route, envelope);
  const explicit = envelope.max_completion_tokens ?? envelope.max_tokens ?? null;
  const left = model.contextLength === null ? null : Math.max(1, model.contextLength - inputTokensEstimate);
  const longest = Math.min(model.maxOutput ?? Infinity, model.contextLength ?? Infinity);
  const most = Math.min(longest, left ?? Infinity);
  const ofModel = most === Infinity ? UNKNOWN_OUTPUT_TOKENS : most;
  return {
    inputTokensEstimate,
    outputTokensLimit: explicit === null ? null : Math.min(explicit, longest) * choices,
    outputTokensBound: Math.min(explicit ?? ofModel, most) * choices,
  };
}

/** Texts or lists of token ids in one request, each with choices of its own. */
function promptsOf(route: InferenceRoute, envelope: RequestEnvelope): number {
  const prompt = route === "/v1/completions" ? envelope["prompt"] : envelope["input"];
  if (route === "/v1/chat/completions") return 1;
  return Array.isArray(prompt) && typeof prompt[0] !== "number" ? Math.max(1, prompt.length) : 1;
}

/** What a chat template may add around the messages: names of roles, markers, a date, words about tools. */
const MOST_TEMPLATE_TOKENS = 512;
/** What stands around a text that no template touches: its first and its last token. */
const MOST_MARKER_TOKENS = 4;

/**
 * The most a request can cost, nano-dollars, so that many at once cannot overspend a budget: nothing cached, no token
 * longer than a byte, and every answer as long as its limit and the window allow.
 */
export function costBoundNanoUsd(
  { route, envelope, bodyText, model }: Pick<InferenceRequest, "route" | "envelope" | "bodyText" | "model">,
  price: Price,
): bigint {
  const promptPrice = Math.max(price.promptPer1k, price.cachedPer1k);
  const windowTokens = longestWindow(model) ?? Infinity;
  let inputTokens = 0;
  if (promptPrice > 0) {
    const prompts = promptsOf(route, envelope);
    const around = route === "/v1/chat/completions" ? MOST_TEMPLATE_TOKENS : MOST_MARKER_TOKENS * prompts;
    const most = UTF8.encode(bodyText).length + around;
    inputTokens = Math.min(most, windowTokens * prompts);
  }
  let outputTokens = 0;
  if (route !== "/v1/embeddings" && price.completionPer1k > 0) {
    const explicit = envelope.max_completion_tokens ?? envelope.max_tokens ?? Infinity;
    const longest = Math.min(explicit, model.maxOutput ?? Infinity, windowTokens);
    outputTokens = (longest === Infinity ? UNKNOWN_OUTPUT_TOKENS : longest) * choicesOf(route, envelope);
  }
  return BigInt(inputTokens) * BigInt(promptPrice) + BigInt(outputTokens) * BigInt(price.completionPer1k);
}

/**
 * The longest answer that is written into a request without a limit or with a higher one, tokens of each choice; null
 * leaves the caller's text as it is. Where a budget would pay for an answer of which nobody knows the bound, it is what
 * was reserved, so that no more can be spent.
 */
export function writtenOutputTokens(
  { route, envelope, model, principal }: Pick<InferenceRequest, "route" | "envelope" | "model" | "principal">,
  price: Price,
): number | null {
  if (route === "/v1/embeddings" || model.maxOutput !== null) return model.maxOutput;
  const explicit = envelope.max_completion_tokens ?? envelope.max_tokens ?? null;
  if (explicit !== null || longestWindow(model) !== null || price.completionPer1k === 0) return null;
  return hasBudget(principal) ? UNKNOWN_OUTPUT_TOKENS : null;
}

/** Any of a model's replicas may answer, so money is bound by the longest window. */
const longestWindow = ({ contextLength, longestContext = contextLength }: ServedModel): number | null => longestContext;

function hasBudget({ keyLimits, projectLimits, accountLimits }: Principal): boolean {
  return [keyLimits, projectLimits, accountLimits].some(
    ({ budgetNanoUsd, budgetDayNanoUsd, budgetMonthNanoUsd }) =>
      (budgetNanoUsd ?? budgetDayNanoUsd ?? budgetMonthNanoUsd) !== null,
  );
}

const UTF8 = new TextEncoder();

const choicesOf = (route: InferenceRoute, envelope: RequestEnvelope): number =>
  (envelope.n ?? 1) * promptsOf(route, envelope);
