import { z } from "zod";
import type { ToolDefinition } from "../../../shared/openai/tools.ts";
import type { NativeModel } from "../../native/binding.ts";
import type { TemplateMessage } from "../openai/chat-messages.ts";
import type { ToolUse } from "./tool-use.ts";

/**
 * A way to call tools for models whose own template has none: tools are told in the system message, and a call is JSON
 * between <tool_call> marks. Here is how it looks in prompts, and the grammar that holds calls to it.
 */
const OPEN = "<tool_call>\n";
const CLOSE = "\n</tool_call>";

/** Known to libllama-common by this template only, from which it derives the parser; no prompt is made with it. */
export const FALLBACK_TEMPLATE = `{%- if tools %}{{- '<|im_start|>system\\n' }}
{%- for tool in tools %}{{- tool | tojson }}{{- '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' }}
{%- if message.content %}{{- message.content }}{%- endif %}
{%- if message.tool_calls %}{%- for call in message.tool_calls %}
{{- '<tool_call>\\n{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson }}{{- '}\\n</tool_call>' }}
{%- endfor %}{%- endif %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}`;

/** Starts the grammar of calls where the model may also answer in words. */
export const FALLBACK_TRIGGERS = JSON.stringify([{ type: "word", value: OPEN.trim() }]);

/** Turns in which tools are called or answer, in words that every template takes. */
export function toolTurnsAsText(messages: readonly TemplateMessage[]): TemplateMessage[] {
  const turns: TemplateMessage[] = [];
  let afterResult = false;
  for (const message of messages) {
    const { tool_calls: calls, tool_call_id: _, ...rest } = message;
    if (message.role === "tool") {
      const text = `<tool_response>\n${message.content}\n</tool_response>`;
      const last = turns.at(-1);
      // Results of parallel calls are one turn: many templates want turns to alternate.
      if (afterResult && last !== undefined) turns[turns.length - 1] = { ...last, content: `${last.content}\n${text}` };
      else turns.push({ role: "user", content: text });
      afterResult = true;
      continue;
    }
    afterResult = false;
    const made = (calls ?? []).map(({ function: call }) => callText(call.name, call.arguments));
    turns.push({ ...rest, content: [message.content, ...made].filter((text) => text !== "").join("\n") });
  }
  return turns;
}

function callText(name: string, callArguments: string): string {
  return `${OPEN}{"name": ${JSON.stringify(name)}, "arguments": ${callArguments === "" ? "{}" : callArguments}}${CLOSE}`;
}

/** The conversation with the tools told in its first system message. */
export function withToolsTold(messages: readonly TemplateMessage[], { tools, choice }: ToolUse): TemplateMessage[] {
  const told = [
    "You can call these functions, each given with the JSON Schema of its arguments:",
    ...tools.map(({ function: tool }) => JSON.stringify(toolTold(tool))),
    `To call one, write ${callText("NAME", '{"ARGUMENT": VALUE}')}`,
    choice === "required" ? "Answer with a call." : "Call one only where it helps; otherwise answer in words.",
  ].join("\n");
  const [first, ...others] = messages;
  if (first?.role !== "system") return [{ role: "system", content: told }, ...messages];
  return [{ ...first, content: `${first.content}\n\n${told}` }, ...others];
}

const toolTold = ({ name, description, parameters }: ToolDefinition["function"]) => ({
  name,
  ...(description === null || description === undefined ? {} : { description }),
  parameters: parameters ?? {},
});

const ruleSchema = z.string().regex(/^root ::=/mu);

/** GBNF of one call, or of one and more; nothing stands before the first one. */
export function callGrammar({ tools, parallel }: ToolUse, model: NativeModel): string {
  const calls = tools.map(({ function: { name } }, place) => ({
    type: "object",
    properties: { name: { const: name }, arguments: { $ref: `#/$defs/tool${place}` } },
    required: ["name", "arguments"],
    additionalProperties: false,
  }));
  const $defs = Object.fromEntries(
    tools.map(({ function: { parameters } }, place) => [`tool${place}`, argumentsSchema(parameters ?? {}, place)]),
  );
  const schema = calls.length === 1 ? { ...calls[0], $defs } : { anyOf: calls, $defs };
  const body = ruleSchema.parse(model.grammarFromSchema(JSON.stringify(schema)));
  const root = `root ::= call${parallel === true ? ' ("\\n" call)*' : ""}`;
  const call = `call ::= ${JSON.stringify(OPEN)} call-body ${JSON.stringify(CLOSE)}`;
  return `${root}\n${call}\n${compact(body.replace(/^root ::=/mu, "call-body ::="))}`;
}

/** A model that never learned to call would fill its token limit with white space. */
const compact = (grammar: string): string => grammar.replace(/^space ::=.*$/mu, 'space ::= " "?');

function argumentsSchema(parameters: Readonly<Record<string, unknown>>, place: number): unknown {
  return Object.keys(parameters).length === 0 ? { type: "object" } : rerooted(parameters, `#/$defs/tool${place}`);
}

/** A schema whose references into itself still hold when it stands at `root` of another. */
function rerooted(schema: unknown, root: string): unknown {
  if (Array.isArray(schema)) return schema.map((entry) => rerooted(entry, root));
  if (typeof schema !== "object" || schema === null) return schema;
  return Object.fromEntries(
    Object.entries(schema).map(([name, member]) => {
      const reference = name === "$ref" && typeof member === "string" && member.startsWith("#");
      return [name, reference ? root + member.slice(1) : rerooted(member, root)];
    }),
  );
}
