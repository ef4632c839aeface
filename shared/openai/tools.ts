import { z } from "zod";

const MAX_TOOLS = 128;
const MAX_TOOL_CHARACTERS = 65_536;

export const toolSchema = z.looseObject({
  type: z.literal("function"),
  function: z.looseObject({
    name: z.string().regex(/^[A-Za-z0-9_-]{1,64}$/, "1 to 64 letters, digits, _ and -"),
    description: z.string().nullish(),
    /** JSON Schema of the arguments; absent for a function without any. */
    parameters: z.record(z.string(), z.unknown()).nullish(),
    strict: z.boolean().nullish(),
  }),
});
export type ToolDefinition = z.infer<typeof toolSchema>;

const toolChoiceSchema = z.union([
  z.enum(["none", "auto", "required"]),
  z.looseObject({ type: z.literal("function"), function: z.looseObject({ name: z.string() }) }),
]);
export type ToolChoice = z.infer<typeof toolChoiceSchema>;

/** Members of a chat request that are about tools. */
export const toolShape = {
  tools: z
    .array(toolSchema)
    .min(1, "a list of tools must not be empty")
    .max(MAX_TOOLS, `at most ${MAX_TOOLS} tools`)
    .refine((tools) => JSON.stringify(tools).length <= MAX_TOOL_CHARACTERS, "the tools are too large")
    .nullish(),
  tool_choice: toolChoiceSchema.nullish(),
  parallel_tool_calls: z.boolean().nullish(),
} as const;
