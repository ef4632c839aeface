import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ChatMessage } from "../../../shared/openai/chat.ts";
import type { NativeChat, NativeModel } from "../../native/binding.ts";
import { nativeErrorCode } from "../../native/load.ts";
import { templateMessages } from "./chat-messages.ts";
import { ControlMarks, ControlText } from "./control-text.ts";

export interface ChatPrompt {
  readonly tokens: Int32Array;
  /** Strings that end an answer in this template, beside the caller's own. */
  readonly stops: readonly string[];
}

/**
 * Renders conversations through the model's own template. A last message of the assistant is a beginning to go on
 * from: its text is appended to the prompt, and the answer holds only what follows.
 */
export class ChatPrompter {
  readonly #model: NativeModel;
  readonly #newNonce: () => string;
  #chat: NativeChat | null = null;
  #controlText: ControlText | null = null;

  constructor(model: NativeModel, newNonce: () => string) {
    this.#model = model;
    this.#newNonce = newNonce;
  }

  /** Throws `invalid_messages` with the template's own words, or a 400 that names a message. */
  prompt(messages: readonly ChatMessage[], templateArguments: Readonly<Record<string, unknown>> | null): ChatPrompt {
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
    const applied = this.#apply({
      messages: guard.replaceIn(whole, marks.mark),
      add_generation_prompt: true,
      ...(templateArguments === null ? {} : { chat_template_kwargs: templateArguments }),
    });
    return {
      tokens: this.#tokens(marks, applied.prompt + guard.replaceInText(begun ?? "", marks.mark)),
      stops: applied.additionalStops,
    };
  }

  #apply(request: object) {
    try {
      this.#chat ??= this.#model.openChat(null);
      return this.#chat.apply(JSON.stringify(request));
    } catch (thrown) {
      if (nativeErrorCode(thrown) !== "template_failed") throw thrown;
      const said = thrown instanceof Error ? thrown.message : "";
      throw new ApiError("invalid_messages", {
        message: `The model's chat template refused the messages: ${said}`,
        param: "messages",
        cause: thrown,
      });
    }
  }

  #tokens(marks: ControlMarks, rendered: string): Int32Array {
    const pieces = marks
      .split(rendered)
      .map(({ text, control }, place) => this.#model.tokenize(text, place === 0, control));
    const tokens = pieces.length === 1 ? (pieces[0] ?? new Int32Array(0)) : concatenated(pieces);
    return withoutSecondBos(tokens, this.#model.info.bosToken);
  }

  /** The vocabulary is read once, at the first conversation. */
  #guard(): ControlText {
    this.#controlText ??= new ControlText(controlTexts(this.#model));
    return this.#controlText;
  }
}

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
