import { z } from "zod";
import { optionalDuration } from "../../shared/config/units.ts";
import { fallbackCycle } from "../routing/fallbacks.ts";

const labels = z.record(z.string().min(1), z.string());

const sloSchema = z.strictObject({
  ttft_p99: optionalDuration().describe(
    "Time to the first token that 99 of 100 requests should keep. Machines that lately took longer are chosen less, and requests of one project go in the order in which this falls due.",
  ),
  tpot_p99: optionalDuration().describe(
    "Time per further token that 99 of 100 requests should keep, such as `40ms`. Machines that lately took longer are chosen less.",
  ),
});

const capabilitiesSchema = z.strictObject({
  tools: z
    .boolean()
    .optional()
    .describe("Whether it may be given tools. Not given: as its hosts report, and static endpoints may."),
  vision: z
    .boolean()
    .optional()
    .describe("Whether it may be given images. Not given: as its hosts report, and static endpoints may."),
  embeddings: z
    .boolean()
    .optional()
    .describe("Whether it answers `/v1/embeddings`. Not given: as its hosts report, and static endpoints do."),
});

export const modelSchema = z.strictObject({
  name: z.string().min(1).describe("The model's name."),
  aliases: z.array(z.string().min(1)).default([]).describe("Other names callers may use."),
  description: z.string().optional().describe("One line that callers see in the model list."),
  context_length: z
    .int()
    .min(1)
    .optional()
    .describe("Tokens of prompt and completion together, where hosts do not say."),
  max_output: z.int().min(1).optional().describe("Most tokens of one completion."),
  fallbacks: z
    .array(z.string().min(1))
    .default([])
    .describe(
      "Models that answer in its stead, in this order, when no replica of it can serve or all failed before their first byte. The request is billed as the model that answered. Never for requests that steer or sense, nor for embeddings.",
    ),
  routing_profile: z.string().optional().describe("One of `router.profiles`. Not given: `router.default_profile`."),
  slo: sloSchema.prefault({}).describe("What its callers were promised."),
  node_selector: labels
    .default({})
    .describe("Labels that a host must carry, with these values, to serve this model; a static endpoint likewise."),
  capabilities: capabilitiesSchema.prefault({}).describe("What it can do beyond plain text."),
});

type ModelFault = { readonly path: (string | number)[]; readonly message: string };

/** What is wrong between models, apart from each of them. */
export function modelFaults(models: readonly z.output<typeof modelSchema>[]): readonly ModelFault[] {
  const cycle = fallbackCycle(models);
  if (cycle === null) return [];
  const place = models.findIndex(({ name }) => name === cycle[0]);
  return [{ path: ["models", place, "fallbacks"], message: `go round in a circle: ${cycle.join(" -> ")}` }];
}
