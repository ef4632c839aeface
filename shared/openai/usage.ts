import { z } from "zod";

/** Token counts as reported to the client and billed. `total_tokens` is always the sum of the other two. */
export const usageSchema = z.looseObject({
  prompt_tokens: z.int().min(0),
  completion_tokens: z.int().min(0),
  total_tokens: z.int().min(0),
  prompt_tokens_details: z.looseObject({ cached_tokens: z.int().min(0).nullish() }).nullish(),
  completion_tokens_details: z.looseObject({ reasoning_tokens: z.int().min(0).nullish() }).nullish(),
});
export type Usage = z.infer<typeof usageSchema>;

/** `reasoningTokens` are part of the completion's; null where they are not told apart. */
export function usageOf(
  promptTokens: number,
  completionTokens: number,
  cachedTokens: number,
  reasoningTokens: number | null = null,
): Usage {
  return {
    prompt_tokens: promptTokens,
    completion_tokens: completionTokens,
    total_tokens: promptTokens + completionTokens,
    prompt_tokens_details: { cached_tokens: cachedTokens },
    ...(reasoningTokens === null ? {} : { completion_tokens_details: { reasoning_tokens: reasoningTokens } }),
  };
}
