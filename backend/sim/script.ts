import { z } from "zod";
import { ApiError } from "../../shared/errors/api-error.ts";
import { apiErrorOfZod } from "../../shared/errors/zod-error.ts";

const atLeastZero = z.number().min(0);
const afterTokens = z.int().min(0).nullable();

/** What a scripted engine does with a request: its speed and its faults. Every member can be set for one request. */
export const simScriptSchema = z.strictObject({
  ttft_ms: atLeastZero.default(0).describe("time from a free slot to the first token, prefill not included"),
  tokens_per_second: atLeastZero.default(0).describe("pace of one stream; 0 is as fast as it goes"),
  prefill_tokens_per_second: atLeastZero.default(0).describe("pace of prompt tokens that are not cached; 0 is instant"),
  output_tokens: z.int().min(1).default(32).describe("tokens until the end of generation, that one included"),
  header_delay_ms: atLeastZero.default(0).describe("time before the response headers of a stream are sent"),
  fail_rate: z.number().min(0).max(1).default(0).describe("share of requests that fail with engine_failed"),
  status: z.int().min(400).max(599).nullable().default(null).describe("refuse with this HTTP status"),
  error_after: afterTokens.default(null).describe("fail after so many tokens: an error event in a stream"),
  cut_after: afterTokens.default(null).describe("close the connection after so many tokens"),
  crash_after: afterTokens.default(null).describe("kill this process after so many tokens"),
  hang: z.boolean().default(false).describe("take the request and never answer"),
});
export type SimScript = z.infer<typeof simScriptSchema>;

const overridesSchema = simScriptSchema.partial();

/**
 * The script of one request: the engine's, then what the model name says after `@`, then the `x-sim` header, then the
 * body's `sim` member. The first two are written `ttft_ms=100,hang`.
 */
export function scriptOf(
  base: SimScript,
  given: { readonly modelSuffix: string; readonly header: string; readonly member: unknown },
): SimScript {
  const layers = [parsePairs(given.modelSuffix), parsePairs(given.header), given.member ?? {}];
  let script = base;
  for (const layer of layers) {
    const parsed = overridesSchema.safeParse(layer);
    if (!parsed.success) throw apiErrorOfZod(parsed.error);
    const named = typeof layer === "object" && layer !== null ? Object.keys(layer) : [];
    const set = Object.fromEntries(Object.entries(parsed.data).filter(([name]) => named.includes(name)));
    script = { ...script, ...set };
  }
  return script;
}

function parsePairs(text: string): Record<string, unknown> {
  const members: Record<string, unknown> = {};
  for (const pair of text.split(",")) {
    const [name = "", value] = pair.trim().split("=", 2);
    if (name === "") continue;
    members[name] = value === undefined ? true : numberOf(name, value);
  }
  return members;
}

function numberOf(name: string, text: string): unknown {
  if (text === "true" || text === "false") return text === "true";
  const value = Number(text);
  if (text === "" || Number.isNaN(value))
    throw new ApiError("invalid_value", { param: "sim", message: `'${name}' is not a number` });
  return value;
}
