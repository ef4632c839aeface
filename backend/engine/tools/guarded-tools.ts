import { z } from "zod";
import { ApiError } from "../../../shared/errors/api-error.ts";
import type { ControlMarks, ControlText } from "../openai/control-text.ts";
import type { ToolUse } from "./tool-use.ts";

const recordSchema = z.record(z.string(), z.unknown());

/**
 * Tools without control texts. Descriptions are prose and keep theirs as marks; in names and rules marks would end up
 * in the grammar, so a control text there is refused.
 */
export function guardedTools(use: ToolUse, guard: ControlText, marks: ControlMarks): ToolUse {
  const prose = (text: string): string => guard.replaceInText(text, marks.mark);
  const guarded = (value: unknown, name: string): unknown => {
    if (typeof value === "string") return name === "description" ? prose(value) : plain(value, guard);
    if (Array.isArray(value)) return value.map((entry) => guarded(entry, ""));
    if (typeof value !== "object" || value === null) return value;
    return Object.fromEntries(
      Object.entries(value).map(([key, member]) => [plain(key, guard), guarded(member, key)] as const),
    );
  };
  const tools = use.tools.map((tool) => {
    const { description, parameters } = tool.function;
    return {
      ...tool,
      function: {
        ...tool.function,
        description: typeof description === "string" ? prose(description) : description,
        parameters:
          parameters === null || parameters === undefined ? null : recordSchema.parse(guarded(parameters, "")),
      },
    };
  });
  return { ...use, tools };
}

function plain(text: string, guard: ControlText): string {
  if (guard.replaceInText(text, () => "") === text) return text;
  throw new ApiError("invalid_value", { message: "'tools' must not contain control tokens.", param: "tools" });
}
