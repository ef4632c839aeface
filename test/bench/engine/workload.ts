import type { StreamedRequest } from "./streamed-request.ts";

/** Tokens of every answer: the end of the text is ignored, so that both sides compute the same number. */
export const ANSWER_TOKENS = 96;

const SAMPLING = { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0, ignore_eos: true } as const;
const SENTENCES = "Once upon a time there was a sailor on the beach. ".repeat(5);
/** Words that neither vocabulary splits, so that prompts of different numbers are equally long. */
const WORDS = ["sailor", "beach", "snow", "moon", "garden", "river", "castle", "forest"];

/** A chat of about 70 tokens; numbers differ within its first six words, so that no prompt is there to be reused. */
export function chatRequest(number: number, more: object = {}): StreamedRequest {
  const messages = [{ role: "user", content: textOf(number) }];
  const body = { model: "m", messages, max_tokens: ANSWER_TOKENS, seed: number, ...SAMPLING, ...more };
  return { path: "/v1/chat/completions", body };
}

/** The same without a template around it. */
export function completionRequest(number: number): StreamedRequest {
  const body = { model: "m", prompt: textOf(number), max_tokens: ANSWER_TOKENS, seed: number, ...SAMPLING };
  return { path: "/v1/completions", body };
}

function textOf(number: number): string {
  const words = Array.from({ length: 6 }, (_, place) => WORDS[(number >> (3 * place)) & 7]).join(" ");
  return `${words}. ${SENTENCES}`;
}

/** A completion of exactly `length` tokens of the vocabulary's plain words, drawn by `number`. */
export function tokensRequest(number: number, length: number, tokenCount: number): StreamedRequest {
  let state = (number + 1) * 2_654_435_761;
  const prompt = Array.from({ length }, () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    // Below 256 are single bytes, at the top the control tokens.
    return 256 + (state % (tokenCount - 300));
  });
  const body = { model: "m", prompt, max_tokens: 4, temperature: 0, ignore_eos: true };
  return { path: "/v1/completions", body };
}

/** Request numbers that are never used twice in a run. */
export class Numbers {
  #last = 0;
  next(): number {
    return (this.#last += 1);
  }
}
