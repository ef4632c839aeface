import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ChatMessage } from "../../../shared/openai/chat.ts";

/** A message as chat templates expect it: one text, and only members that are set. */
export interface TemplateMessage {
  readonly role: string;
  readonly content: string;
  readonly name?: string;
  readonly tool_calls?: NonNullable<ChatMessage["tool_calls"]>;
  readonly tool_call_id?: string;
  readonly reasoning_content?: string;
}

/**
 * Messages in the template's form: `developer` becomes `system`, `function` becomes `tool`, text parts are joined as
 * they stand. Order and number of system messages stay the caller's; what the template cannot place, it refuses.
 */
export function templateMessages(messages: readonly ChatMessage[]): TemplateMessage[] {
  const issuedCalls = new Set<string>();
  return messages.map((message, place) => {
    for (const call of message.tool_calls ?? []) issuedCalls.add(call.id);
    checkToolCallId(message, issuedCalls, place);
    const { name, tool_calls: calls, tool_call_id: callId, reasoning_content: reasoning } = message;
    return {
      role: templateRole(message.role),
      content: textOf(message, place),
      ...(name === null || name === undefined ? {} : { name }),
      ...(calls === null || calls === undefined || calls.length === 0 ? {} : { tool_calls: calls }),
      ...(callId === null || callId === undefined ? {} : { tool_call_id: callId }),
      ...(reasoning === null || reasoning === undefined ? {} : { reasoning_content: reasoning }),
    };
  });
}

function templateRole(role: ChatMessage["role"]): string {
  if (role === "developer") return "system";
  return role === "function" ? "tool" : role;
}

function textOf(message: ChatMessage, place: number): string {
  const { content } = message;
  if (typeof content === "string") return content;
  if (content === null || content === undefined) {
    // An assistant turn that only calls tools has no text.
    if (message.role === "assistant") return "";
    const param = `messages[${place}].content`;
    throw new ApiError("missing_field", { message: `'${param}' is required.`, param });
  }
  return content
    .map((part, at) => {
      const text = part.type === "text" ? part["text"] : undefined;
      if (typeof text === "string") return text;
      const param = `messages[${place}].content[${at}]`;
      throw new ApiError("invalid_value", {
        message:
          part.type === "text"
            ? `'${param}.text' must be a string.`
            : `'${param}' has a type other than 'text'; this model reads text only.`,
        param,
      });
    })
    .join("");
}

function checkToolCallId(message: ChatMessage, issued: ReadonlySet<string>, place: number): void {
  const id = message.tool_call_id;
  if (message.role !== "tool") return;
  const param = `messages[${place}].tool_call_id`;
  if (id === null || id === undefined)
    throw new ApiError("missing_field", { message: `'${param}' is required.`, param });
  if (issued.has(id)) return;
  throw new ApiError("invalid_value", { message: `'${param}' names a call that no earlier message made.`, param });
}
