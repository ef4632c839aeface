import type { RequestEnvelope } from "../../../shared/openai/request-envelope.ts";
import type { ContextNeed } from "../../ports/coordinator.ts";
import type { ServedModel } from "../../ports/fleet.ts";
import type { TokenBounds } from "./bounds.ts";

const WORDS = /\S+/g;

/**
 * How much context a request needs; null where the shortest of its model's replicas surely has that, which spares the
 * pool a look. Exact counts are the engine's, so only what is sure is ever refused for: no token spans two words.
 */
export function contextNeed(
  envelope: RequestEnvelope,
  bodyText: string,
  bounds: TokenBounds,
  model: ServedModel,
): ContextNeed | null {
  const { contextLength } = model;
  if (contextLength === null) return null;
  const limit = envelope.max_completion_tokens ?? envelope.max_tokens ?? 0;
  const expectedTokens = bounds.inputTokensEstimate + limit;
  // A word and the space after it are two characters at least.
  const mayBeTooLong = bodyText.length > 2 * contextLength;
  if (expectedTokens <= contextLength && !mayBeTooLong) return null;
  return { leastPromptTokens: mayBeTooLong ? wordsOf(envelope) : 0, expectedTokens };
}

/** Place of the longest prompt in a list of several, for a refusal that names it; null where there is one. */
export function placeOfLongest(envelope: RequestEnvelope): number | null {
  const lengths = lengthsOf(envelope);
  return lengths.length > 1 ? lengths.indexOf(Math.max(...lengths)) : null;
}

/** Words of the longest prompt in a request. */
const wordsOf = (envelope: RequestEnvelope): number => Math.max(0, ...lengthsOf(envelope));

/** Words, or tokens, of each prompt. */
function lengthsOf({ messages, prompt, input }: RequestEnvelope): readonly number[] {
  if (Array.isArray(messages))
    return [messages.reduce((sum: number, message: unknown) => sum + wordsIn(contentOf(message)), 0)];
  const texts: readonly unknown[] = Array.isArray(prompt) ? prompt : Array.isArray(input) ? input : [prompt ?? input];
  // A list of numbers is one prompt of tokens.
  if (typeof texts[0] === "number") return [texts.length];
  return texts.map((text) => (Array.isArray(text) ? text.length : wordsIn(text)));
}

function contentOf(message: unknown): unknown {
  return typeof message === "object" && message !== null && "content" in message ? message.content : null;
}

function wordsIn(content: unknown): number {
  if (typeof content === "string") return content.match(WORDS)?.length ?? 0;
  if (!Array.isArray(content)) return 0;
  return content.reduce((sum: number, part: unknown) => sum + wordsIn(textOf(part)), 0);
}

function textOf(part: unknown): unknown {
  return typeof part === "object" && part !== null && "text" in part && typeof part.text === "string"
    ? part.text
    : null;
}
