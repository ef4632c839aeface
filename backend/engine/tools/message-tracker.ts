import { z } from "zod";

/** Reads the text of an answer as an OpenAI message, in JSON. Throws where it does not fit the format. */
export type AnswerParser = (text: string, partial: boolean) => string;

/** Something new of one tool call. The first delta of a call has its id and name. */
export interface ToolCallDelta {
  readonly index: number;
  readonly id?: string;
  readonly name?: string;
  readonly arguments: string;
}
/** What an answer has gained; texts are what is new, and empty when nothing is. */
export interface MessageDelta {
  readonly text: string;
  readonly reasoning: string;
  readonly toolCalls: readonly ToolCallDelta[];
}

const NOTHING_NEW: MessageDelta = { text: "", reasoning: "", toolCalls: [] };

const messageSchema = z.object({
  content: z.string().nullish(),
  reasoning_content: z.string().nullish(),
  tool_calls: z
    .array(z.object({ id: z.string().nullish(), function: z.object({ name: z.string(), arguments: z.unknown() }) }))
    .nullish(),
});
interface ParsedCall {
  readonly id: string;
  readonly name: string;
  readonly arguments: string;
}
interface ParsedMessage {
  readonly text: string;
  readonly reasoning: string;
  readonly calls: readonly ParsedCall[];
}

/**
 * Splits an answer into content, reasoning and tool calls while it grows. What was told is never taken back: a reading
 * that contradicts it is passed over, and the end tells the rest.
 */
export class MessageTracker {
  readonly #parse: AnswerParser;
  readonly #newCallId: () => string;
  #readLength = 0;
  #text = "";
  #reasoning = "";
  readonly #calls: { arguments: string }[] = [];

  constructor(parse: AnswerParser, newCallId: () => string) {
    this.#parse = parse;
    this.#newCallId = newCallId;
  }

  /** Calls told so far. */
  get callCount(): number {
    return this.#calls.length;
  }

  /** Reasoning told so far. */
  get reasoning(): string {
    return this.#reasoning;
  }

  /** What is reasoning in a beginning of the answer. */
  reasoningIn(text: string): string {
    return this.#read(text, true)?.reasoning ?? "";
  }

  /** `text` is the whole answer so far. */
  update(text: string): MessageDelta {
    // Every reading goes over the whole text, so a long one is read again only when it has grown by a thousandth.
    if (text.length - this.#readLength < Math.max(1, text.length / 1_000)) return NOTHING_NEW;
    this.#readLength = text.length;
    const read = this.#read(text, true);
    return read === null ? NOTHING_NEW : this.#advance(read);
  }

  /** `cut` says that the answer ends where its token limit did. What cannot be parsed is content, word for word. */
  end(text: string, cut: boolean): MessageDelta {
    const read = this.#read(text, cut);
    const sound = read !== null && (cut || read.calls.every(({ arguments: json }) => isJson(json)));
    return this.#advance(sound ? withArguments(read, cut) : { text, reasoning: "", calls: [] });
  }

  #read(text: string, partial: boolean): ParsedMessage | null {
    try {
      const {
        content,
        reasoning_content: reasoning,
        tool_calls: calls,
      } = messageSchema.parse(JSON.parse(this.#parse(text, partial)));
      return {
        text: content ?? "",
        reasoning: reasoning ?? "",
        calls: (calls ?? []).map(({ id, function: call }) => ({
          id: id ?? "",
          name: call.name,
          arguments: argumentsText(call.arguments),
        })),
      };
    } catch {
      return null;
    }
  }

  #advance(read: ParsedMessage): MessageDelta {
    const reasoning = grown(this.#reasoning, read.reasoning);
    const text = grown(this.#text, read.text);
    this.#reasoning += reasoning;
    this.#text += text;
    const toolCalls = read.calls.flatMap((call, index) => this.#advanceCall(call, index));
    return { text, reasoning, toolCalls };
  }

  #advanceCall(call: ParsedCall, index: number): ToolCallDelta[] {
    const told = this.#calls[index];
    if (told !== undefined) {
      const more = grown(told.arguments, call.arguments);
      told.arguments += more;
      return more === "" ? [] : [{ index, arguments: more }];
    }
    if (call.name === "" || index !== this.#calls.length) return [];
    this.#calls.push({ arguments: call.arguments });
    const id = call.id === "" ? this.#newCallId() : call.id;
    return [{ index, id, name: call.name, arguments: call.arguments }];
  }
}

/** What `now` has beyond `told`; nothing where it is not its continuation. */
const grown = (told: string, now: string): string => (now.startsWith(told) ? now.slice(told.length) : "");

/** Clients parse the text, so it is never an object and never null. */
function argumentsText(value: unknown): string {
  if (value === null || value === undefined) return "";
  return typeof value === "string" ? value : JSON.stringify(value);
}

/** A call without arguments has an empty object; one that was cut is told as it is. */
function withArguments(read: ParsedMessage, cut: boolean): ParsedMessage {
  if (cut) return read;
  return { ...read, calls: read.calls.map((call) => (call.arguments === "" ? { ...call, arguments: "{}" } : call)) };
}

function isJson(text: string): boolean {
  if (text === "") return true;
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false;
  }
}
