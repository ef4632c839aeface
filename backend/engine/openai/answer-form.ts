import type { TokenChance, TrailEntry } from "../text/logprob-trail.ts";

/** Members that every chunk of one answer repeats. */
export interface AnswerHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}
/** Text with what belongs to it; `entries` is null when no log-probabilities were asked for. */
export interface AnswerPart {
  readonly text: string;
  readonly entries: readonly TrailEntry[] | null;
}
export type WireFinishReason = "stop" | "length";

/** The two ways in which OpenAI writes an answer. */
export interface AnswerForm {
  readonly idPrefix: string;
  readonly wholeObject: string;
  readonly chunkObject: string;
  /** The only choice of a whole answer. */
  whole(part: AnswerPart, reason: WireFinishReason): object;
  /** A choice of a stream; `first` carries the role where there are roles. Each part is written once, in order. */
  delta(part: AnswerPart, first: boolean): object;
  finish(reason: WireFinishReason): object;
}

const decoder = new TextDecoder();
const textOf = (bytes: Uint8Array): string => decoder.decode(bytes);

export const CHAT_FORM: AnswerForm = {
  idPrefix: "chatcmpl-",
  wholeObject: "chat.completion",
  chunkObject: "chat.completion.chunk",
  whole: ({ text, entries }, reason) => ({
    index: 0,
    message: { role: "assistant", content: text, refusal: null },
    logprobs: chatLogprobs(entries),
    finish_reason: reason,
  }),
  delta: ({ text, entries }, first) => ({
    index: 0,
    delta: first ? { role: "assistant", content: text } : { content: text },
    logprobs: chatLogprobs(entries),
    finish_reason: null,
  }),
  finish: (reason) => ({ index: 0, delta: {}, logprobs: null, finish_reason: reason }),
};

const chatChance = ({ bytes, logprob }: TokenChance) => ({ token: textOf(bytes), logprob, bytes: [...bytes] });

function chatLogprobs(entries: readonly TrailEntry[] | null): object | null {
  if (entries === null) return null;
  return {
    content: entries.map((entry) => ({ ...chatChance(entry), top_logprobs: entry.top.map(chatChance) })),
    refusal: null,
  };
}

/** A completion's log-probabilities carry offsets into the text, so one form serves one answer. */
export function completionForm(): AnswerForm {
  let offset = 0;
  const logprobs = (entries: readonly TrailEntry[] | null): object | null => {
    if (entries === null) return null;
    return {
      tokens: entries.map(({ bytes }) => textOf(bytes)),
      token_logprobs: entries.map(({ logprob }) => logprob),
      top_logprobs: entries.map(({ top }) => Object.fromEntries(top.map((one) => [textOf(one.bytes), one.logprob]))),
      text_offset: entries.map(({ bytes }) => {
        const at = offset;
        offset += textOf(bytes).length;
        return at;
      }),
    };
  };
  return {
    idPrefix: "cmpl-",
    wholeObject: "text_completion",
    chunkObject: "text_completion",
    whole: ({ text, entries }, reason) => ({ index: 0, text, logprobs: logprobs(entries), finish_reason: reason }),
    delta: ({ text, entries }) => ({ index: 0, text, logprobs: logprobs(entries), finish_reason: null }),
    finish: (reason) => ({ index: 0, text: "", logprobs: null, finish_reason: reason }),
  };
}
