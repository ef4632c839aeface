import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ToolChoice, ToolDefinition } from "../../../shared/openai/tools.ts";
import type { NativeModel } from "../../native/binding.ts";
import { nativeErrorCode } from "../../native/load.ts";
import { countFault } from "../openai/grammar-counts.ts";
import { plainWords } from "../openai/library-words.ts";

/** The tools that one answer may or must call. */
export interface ToolUse {
  /** Those that may be called; a choice by name leaves one. */
  readonly tools: readonly ToolDefinition[];
  readonly choice: "auto" | "required";
  /** Several calls in one answer; null leaves it to the format. */
  readonly parallel: boolean | null;
}

interface ToolRequest {
  readonly tools?: readonly ToolDefinition[] | null | undefined;
  readonly tool_choice?: ToolChoice | null | undefined;
  readonly parallel_tool_calls?: boolean | null | undefined;
}

/** What a request says about tools, or null when no call may come of it. Throws an ApiError that names the member. */
export function toolUseOf(request: ToolRequest, model: NativeModel): ToolUse | null {
  const tools = request.tools ?? [];
  const choice = request.tool_choice ?? "auto";
  if (tools.length === 0) {
    if (choice === "auto" || choice === "none") return null;
    throw new ApiError("invalid_value", {
      message: "'tool_choice' asks for a call, but 'tools' is missing.",
      param: "tool_choice",
    });
  }
  checkTools(tools, model);
  const parallel = request.parallel_tool_calls ?? null;
  if (choice === "none") return null;
  if (typeof choice === "string") return { tools, choice, parallel };
  const named = tools.filter((tool) => tool.function.name === choice.function.name);
  if (named.length > 0) return { tools: named, choice: "required", parallel };
  throw new ApiError("invalid_value", {
    message: "'tool_choice' names a function that is not among 'tools'.",
    param: "tool_choice.function.name",
  });
}

function checkTools(tools: readonly ToolDefinition[], model: NativeModel): void {
  const names = new Set<string>();
  for (const [place, { function: tool }] of tools.entries()) {
    const at = `tools[${place}].function`;
    if (names.has(tool.name)) {
      throw new ApiError("invalid_value", {
        message: `'${at}.name': two tools have the name ${tool.name}.`,
        param: `${at}.name`,
      });
    }
    names.add(tool.name);
    checkSchema(tool.parameters ?? {}, `${at}.parameters`, model);
  }
}

/** What no grammar can be made of would fail later, as an error of the template. */
function checkSchema(schema: Readonly<Record<string, unknown>>, param: string, model: NativeModel): void {
  if (Object.keys(schema).length === 0) return;
  const refusal = (why: string, cause?: unknown) =>
    new ApiError("invalid_value", { message: `'${param}' cannot be turned into a grammar: ${why}`, param, cause });
  try {
    const grammar = model.grammarFromSchema(JSON.stringify(schema));
    const counts = countFault(grammar);
    if (counts !== null) throw refusal(counts);
    model.checkGrammar(grammar, "root");
  } catch (thrown) {
    if (nativeErrorCode(thrown) !== "grammar_invalid") throw thrown;
    throw refusal(plainWords(thrown instanceof Error ? thrown.message : ""), thrown);
  }
}
