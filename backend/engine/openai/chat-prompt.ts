import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ChatMessage } from "../../../shared/openai/chat.ts";
import type { AppliedChat, NativeChat, NativeModel, SamplerOptions } from "../../native/binding.ts";
import { nativeErrorCode } from "../../native/load.ts";
import {
  FALLBACK_TEMPLATE,
  FALLBACK_TRIGGERS,
  callGrammar,
  toolTurnsAsText,
  withToolsTold,
} from "../tools/fallback-format.ts";
import { guardedTools } from "../tools/guarded-tools.ts";
import type { AnswerParser } from "../tools/message-tracker.ts";
import type { ToolUse } from "../tools/tool-use.ts";
import { templateMessages, type TemplateMessage } from "./chat-messages.ts";
import { ControlMarks, ControlText } from "./control-text.ts";
import { plainWords } from "./library-words.ts";
import { conversationKind, PlainRenderings } from "./plain-renderings.ts";

export type Constraint = Pick<SamplerOptions, "grammar" | "grammarLazy" | "grammarTriggers">;
export const UNCONSTRAINED: Constraint = { grammar: "", grammarLazy: false, grammarTriggers: "" };

export interface ChatPrompt {
  /** The rendered conversation, with control texts of the caller's as they were written. */
  readonly text: string;
  readonly tokens: Int32Array;
  /** Strings that end an answer in this template, beside the caller's own. */
  readonly stops: readonly string[];
  /** What holds the answer to its tools or to its schema. */
  readonly constraint: Constraint;
  /** Control tokens by which the parser tells parts of the answer apart. */
  readonly renderedTokens: Int32Array;
  /** Null when the whole text is the content. */
  readonly parser: AnswerParser | null;
  /** The parser tells reasoning apart from the content. */
  readonly marksReasoning: boolean;
}

export interface PromptWish {
  readonly templateArguments: Readonly<Record<string, unknown>> | null;
  readonly tools: ToolUse | null;
  /** Schema of the answer; its grammar comes from the template where that has reasoning before the answer. */
  readonly schema: object | null;
}
export const PLAIN: PromptWish = { templateArguments: null, tools: null, schema: null };

/** Variables that templates get from us: a caller who set them would not be answered what he asked. */
const OWN_VARIABLES = ["messages", "add_generation_prompt", "bos_token", "eos_token", "tools"];

const PROBE_TOOL = { type: "function", function: { name: "probe", description: "", parameters: { type: "object" } } };

/**
 * Renders conversations through the model's own template. A last message of the assistant is a beginning to go on
 * from: its text is appended to the prompt, and the answer holds only what follows.
 */
export class ChatPrompter {
  readonly #model: NativeModel;
  readonly #newNonce: () => string;
  readonly #plain = new PlainRenderings();
  #chat: NativeChat | null = null;
  #fallback: NativeChat | null = null;
  #controlText: ControlText | null = null;
  #knowsTools: boolean | null = null;

  constructor(model: NativeModel, newNonce: () => string) {
    this.#model = model;
    this.#newNonce = newNonce;
  }

  /** Throws `invalid_messages` with the template's own words, or a 400 that names a member. */
  prompt(messages: readonly ChatMessage[], wish: PromptWish): ChatPrompt {
    checkTemplateArguments(wish.templateArguments);
    const all = templateMessages(messages);
    const last = all.at(-1);
    const begun = last?.role === "assistant" && last.tool_calls === undefined ? last.content : null;
    const whole = begun === null ? all : all.slice(0, -1);
    if (whole.length === 0) {
      const message = "At least one message must come before the assistant's.";
      throw new ApiError("invalid_messages", { message, param: "messages" });
    }
    const marks = new ControlMarks(this.#newNonce());
    const guard = this.#guard();
    const tools = wish.tools === null ? null : guardedTools(wish.tools, guard, marks);
    const own = !usesTools(all, tools) || this.#templateKnowsTools();
    const turns = own ? whole : withFallback(whole, tools);
    const request = {
      messages: guard.replaceIn(turns, marks.mark),
      add_generation_prompt: true,
      ...(wish.templateArguments === null ? {} : { chat_template_kwargs: wish.templateArguments }),
      ...(own && tools !== null ? toolMembers(tools) : {}),
      ...(wish.schema === null ? {} : { json_schema: wish.schema }),
    };
    const held = wish.tools !== null || wish.schema !== null;
    const applied = this.#apply(request, held ? null : conversationKind(turns, wish.templateArguments));
    const rendered = applied.prompt + guard.replaceInText(begun ?? "", marks.mark);
    const pieces = marks.split(rendered);
    return {
      text: pieces.map(({ text }) => text).join(""),
      tokens: this.#tokens(pieces),
      stops: applied.additionalStops,
      ...(own || tools === null ? this.#ownReading(applied, wish, begun) : this.#fallbackReading(tools)),
    };
  }

  /** The parser reads an answer from its first token on, so one that goes on from a beginning is all content. */
  #ownReading(applied: AppliedChat, wish: PromptWish, begun: string | null) {
    const constrained = wish.tools !== null || (wish.schema !== null && applied.supportsThinking && begun === null);
    const read = wish.tools !== null || (applied.supportsThinking && begun === null);
    const { grammar, grammarLazy, grammarTriggers, parser } = applied;
    return {
      constraint: constrained ? { grammar, grammarLazy, grammarTriggers } : UNCONSTRAINED,
      renderedTokens: read ? this.#singleTokens(applied.preservedTokens) : new Int32Array(0),
      parser: read ? this.#parserOf(this.#ownChat(), parser) : null,
      marksReasoning: read && applied.supportsThinking,
    };
  }

  #fallbackReading(tools: ToolUse) {
    this.#fallback ??= this.#model.openChat(FALLBACK_TEMPLATE);
    const request = { messages: [{ role: "user", content: "x" }], add_generation_prompt: true, ...toolMembers(tools) };
    const { parser } = this.#fallback.apply(JSON.stringify(request));
    const lazy = tools.choice === "auto";
    return {
      constraint: {
        grammar: callGrammar(tools, this.#model),
        grammarLazy: lazy,
        grammarTriggers: lazy ? FALLBACK_TRIGGERS : "",
      },
      renderedTokens: new Int32Array(0),
      parser: this.#parserOf(this.#fallback, parser),
      marksReasoning: false,
    };
  }

  #parserOf(chat: NativeChat, parser: string): AnswerParser {
    return (text, partial) => chat.parse(text, partial, parser);
  }

  /** Whether the library finds a way to call tools in the model's template; asked once. */
  #templateKnowsTools(): boolean {
    if (this.#knowsTools !== null) return this.#knowsTools;
    try {
      const { grammar } = this.#ownChat().apply(
        JSON.stringify({
          messages: [{ role: "user", content: "x" }],
          tools: [PROBE_TOOL],
          tool_choice: "required",
          add_generation_prompt: true,
        }),
      );
      this.#knowsTools = grammar !== "";
    } catch (thrown) {
      if (nativeErrorCode(thrown) !== "template_failed") throw thrown;
      this.#knowsTools = false;
    }
    return this.#knowsTools;
  }

  #ownChat(): NativeChat {
    this.#chat ??= this.#model.openChat(null);
    return this.#chat;
  }

  /** Without a `kind` the template is analysed, whatever it is. */
  #apply(request: object, kind: string | null): AppliedChat {
    const full = () => this.#tryToApply(request);
    const plain = () => this.#tryToApply({ ...request, plain: true });
    const failure = kind === null ? full() : this.#plain.render(kind, full, plain);
    if (!(failure instanceof Error)) return failure;
    const said = plainWords(failure.message);
    // Whatever can be left out without a failure was its cause.
    if ("chat_template_kwargs" in request) {
      const { chat_template_kwargs: _, ...rest } = request;
      if (!(this.#tryToApply(rest) instanceof Error)) {
        const message = `The model's chat template cannot use 'chat_template_kwargs': ${said}`;
        throw new ApiError("invalid_value", { message, param: "chat_template_kwargs", cause: failure });
      }
    }
    if ("json_schema" in request) {
      const { json_schema: _, ...rest } = request;
      if (!(this.#tryToApply(rest) instanceof Error)) {
        const message = `The schema cannot be turned into a grammar: ${said}`;
        throw new ApiError("invalid_response_format", { message, param: "response_format", cause: failure });
      }
    }
    throw new ApiError("invalid_messages", {
      message: `The model's chat template refused the messages: ${said}`,
      param: "messages",
      cause: failure,
    });
  }

  #tryToApply(request: object): AppliedChat | Error {
    try {
      return this.#ownChat().apply(JSON.stringify(request));
    } catch (thrown) {
      if (nativeErrorCode(thrown) !== "template_failed" || !(thrown instanceof Error)) throw thrown;
      return thrown;
    }
  }

  #tokens(pieces: ReturnType<ControlMarks["split"]>): Int32Array {
    const parts = pieces.map(({ text, control }, place) => this.#model.tokenize(text, place === 0, control));
    const tokens = parts.length === 1 ? (parts[0] ?? new Int32Array(0)) : concatenated(parts);
    if (tokens.length === 0) {
      const message = "The model's chat template makes an empty prompt of the messages.";
      throw new ApiError("invalid_messages", { message, param: "messages" });
    }
    return withoutSecondBos(tokens, this.#model.info.bosToken);
  }

  #singleTokens(texts: readonly string[]): Int32Array {
    const tokens = texts.map((text) => this.#model.tokenize(text, false, true)).filter(({ length }) => length === 1);
    return concatenated(tokens);
  }

  /** The vocabulary is read once, at the first conversation. */
  #guard(): ControlText {
    this.#controlText ??= new ControlText(controlTexts(this.#model));
    return this.#controlText;
  }
}

function checkTemplateArguments(templateArguments: PromptWish["templateArguments"]): void {
  const taken = OWN_VARIABLES.find((name) => Object.hasOwn(templateArguments ?? {}, name));
  if (taken === undefined) return;
  throw new ApiError("invalid_value", {
    message: `'chat_template_kwargs' must not set '${taken}': the server sets it.`,
    param: "chat_template_kwargs",
  });
}

const usesTools = (messages: readonly TemplateMessage[], tools: ToolUse | null): boolean =>
  tools !== null || messages.some(({ role, tool_calls: calls }) => role === "tool" || calls !== undefined);

function withFallback(messages: readonly TemplateMessage[], tools: ToolUse | null): TemplateMessage[] {
  const turns = toolTurnsAsText(messages);
  return tools === null ? turns : withToolsTold(turns, tools);
}

const toolMembers = ({ tools, choice, parallel }: ToolUse) => ({
  tools: tools.map(({ type, function: { name, description, parameters } }) => ({
    type,
    function: { name, description: description ?? "", parameters: parameters ?? { type: "object", properties: {} } },
  })),
  tool_choice: choice,
  parallel_tool_calls: parallel ?? true,
});

/** A template may write the begin-of-text token that the tokenizer adds too; one stays. */
export function withoutSecondBos(tokens: Int32Array, bosToken: number | null): Int32Array {
  return bosToken !== null && tokens[0] === bosToken && tokens[1] === bosToken ? tokens.slice(1) : tokens;
}

function* controlTexts(model: NativeModel): Generator<string> {
  const decoder = new TextDecoder();
  for (let token = 0; token < model.info.vocabularySize; token += 1) {
    if (model.isControl(token)) yield decoder.decode(model.tokenBytes(token, true));
  }
}

function concatenated(pieces: readonly Int32Array[]): Int32Array {
  const all = new Int32Array(pieces.reduce((sum, { length }) => sum + length, 0));
  let at = 0;
  for (const piece of pieces) {
    all.set(piece, at);
    at += piece.length;
  }
  return all;
}
