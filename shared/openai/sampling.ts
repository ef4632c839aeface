import { z } from "zod";
import { MAX_STOP_STRINGS, MAX_STOP_STRING_LENGTH } from "./limits.ts";

const stopString = z
  .string()
  .min(1, "a stop string must not be empty")
  .max(MAX_STOP_STRING_LENGTH, `a stop string has at most ${MAX_STOP_STRING_LENGTH} characters`);

/** A JSON null stands for "not given", as OpenAI's clients send it. */
const optional = <T extends z.ZodType>(schema: T) => schema.nullish();

/** Sampling members that chat and completions share. Ranges are OpenAI's; the last three are common extensions. */
export const samplingShape = {
  temperature: optional(z.number().min(0).max(2)),
  top_p: optional(z.number().gt(0).max(1)),
  max_tokens: optional(z.int().min(1)),
  stop: optional(
    z.union([stopString, z.array(stopString).max(MAX_STOP_STRINGS, `at most ${MAX_STOP_STRINGS} stop strings`)]),
  ),
  /** Any integer that JSON carries exactly; the sampler takes it modulo 2^32, so -1 is 4294967295. */
  seed: optional(z.int()),
  n: optional(z.int().min(1).max(128)),
  stream: optional(z.boolean()),
  stream_options: optional(z.looseObject({ include_usage: optional(z.boolean()) })),
  frequency_penalty: optional(z.number().min(-2).max(2)),
  presence_penalty: optional(z.number().min(-2).max(2)),
  user: optional(z.string()),
  top_k: optional(z.int().min(0)),
  min_p: optional(z.number().min(0).max(1)),
  ignore_eos: optional(z.boolean()),
} as const;

/** `stream_options` without `stream: true` is a mistake that must not pass in silence (case C010). */
export function streamOptionsFault(request: {
  stream?: boolean | null | undefined;
  stream_options?: unknown;
}): boolean {
  return request.stream !== true && request.stream_options !== null && request.stream_options !== undefined;
}
