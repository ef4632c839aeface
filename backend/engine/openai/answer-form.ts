import type { ToolCallDelta } from "../tools/message-tracker.ts";
import type { TokenChance, TrailEntry } from "../text/logprob-trail.ts";

/** Members that every chunk of one answer repeats. */
export interface AnswerHead {
  readonly id: string;
  /** Unix seconds. */
  readonly created: number;
  readonly model: string;
}
/** What one choice has gained; `entries` is null when no log-probabilities were asked for. */
export interface AnswerPart {
  readonly text: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCallDelta[];
  readonly entries: readonly TrailEntry[] | null;
}
export type WireFinishReason = "stop" | "length" | "tool_calls";

/** How OpenAI names the parts of an answer of one kind. */
export interface AnswerNames {
  readonly idPrefix: string;
  readonly wholeObject: string;
  readonly chunkObject: string;
}
export const CHAT_NAMES: AnswerNames = {
  idPrefix: "chatcmpl-",
  wholeObject: "chat.completion",
  chunkObject: "chat.completion.chunk",
};
export const COMPLETION_NAMES: AnswerNames = {
  idPrefix: "cmpl-",
  wholeObject: "text_completion",
  chunkObject: "text_completion",
};

/** One choice of an answer, in either of the two ways in which it can be told. */
export interface ChoiceForm {
  /** The choice of a whole answer, from the one part that is all of it. */
  whole(part: AnswerPart, reason: WireFinishReason): object;
  /** The choice in a stream; `first` carries the role where there are roles. Each part is written once, in order. */
  delta(part: AnswerPart, first: boolean): object;
  finish(reason: WireFinishReason): object;
}

const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
const textOf = (bytes: Uint8Array): string => decoder.decode(bytes);

export function chatForm(index: number): ChoiceForm {
  return {
    whole: (part, reason) => ({
      index,
      message: {
        role: "assistant",
        content: part.text === "" && part.toolCalls.length > 0 ? null : part.text,
        refusal: null,
        ...(part.reasoning === "" ? {} : { reasoning_content: part.reasoning }),
        ...(part.toolCalls.length === 0 ? {} : { tool_calls: part.toolCalls.map(wholeCall) }),
      },
      logprobs: chatLogprobs(part.entries),
      finish_reason: reason,
    }),
    delta: (part, first) => ({
      index,
      delta: { ...(first ? { role: "assistant" } : {}), ...deltaMembers(part) },
      logprobs: chatLogprobs(part.entries),
      finish_reason: null,
    }),
    finish: (reason) => ({ index, delta: {}, logprobs: null, finish_reason: reason }),
  };
}

function deltaMembers({ text, reasoning, toolCalls }: AnswerPart): object {
  const other = reasoning !== "" || toolCalls.length > 0;
  return {
    ...(text === "" && other ? {} : { content: text }),
    ...(reasoning === "" ? {} : { reasoning_content: reasoning }),
    ...(toolCalls.length === 0 ? {} : { tool_calls: toolCalls.map(callDelta) }),
  };
}

const callDelta = ({ index, id, name, arguments: more }: ToolCallDelta) =>
  id === undefined
    ? { index, function: { arguments: more } }
    : { index, id, type: "function", function: { name, arguments: more } };

const wholeCall = ({ id, name, arguments: text }: ToolCallDelta) => ({
  id,
  type: "function",
  function: { name, arguments: text },
});

const chatChance = ({ bytes, logprob }: TokenChance) => ({ token: textOf(bytes), logprob, bytes: [...bytes] });

function chatLogprobs(entries: readonly TrailEntry[] | null): object | null {
  if (entries === null) return null;
  return {
    content: entries.map((entry) => ({ ...chatChance(entry), top_logprobs: entry.top.map(chatChance) })),
    refusal: null,
  };
}

/** A completion's log-probabilities carry offsets into the text, so one form serves one choice. */
export function completionForm(index: number): ChoiceForm {
  const offsetBefore = textOffsets();
  const logprobs = (entries: readonly TrailEntry[] | null): object | null => {
    if (entries === null) return null;
    return {
      tokens: entries.map(({ bytes }) => textOf(bytes)),
      token_logprobs: entries.map(({ logprob }) => logprob),
      top_logprobs: entries.map(({ logprob, top }) =>
        logprob === null ? null : Object.fromEntries(top.map((one) => [textOf(one.bytes), one.logprob])),
      ),
      text_offset: entries.map(({ bytes }) => offsetBefore(bytes)),
    };
  };
  return {
    whole: ({ text, entries }, reason) => ({ index, text, logprobs: logprobs(entries), finish_reason: reason }),
    delta: ({ text, entries }) => ({ index, text, logprobs: logprobs(entries), finish_reason: null }),
    finish: (reason) => ({ index, text: "", logprobs: null, finish_reason: reason }),
  };
}

/** Where in the text each next token begins; one that begins inside a character stands at that character. */
function textOffsets(): (bytes: Uint8Array) => number {
  const whole = new TextDecoder("utf-8", { ignoreBOM: true });
  let offset = 0;
  return (bytes) => {
    // What does not go on with an unfinished character ends it.
    if (((bytes[0] ?? 0) & 0xc0) !== 0x80) offset += whole.decode().length;
    const at = offset;
    offset += whole.decode(bytes, { stream: true }).length;
    return at;
  };
}
