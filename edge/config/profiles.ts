import { z } from "zod";

/** Always there unless a profile of this name is given: everything weighs as it is, affinity on, no hedging. */
export const BUILT_IN_PROFILE = "balanced";

const weight = z.number().min(0).max(1_000).default(1);

export const profileSchema = z.strictObject({
  load: weight.describe("Weight of the seconds until a machine would have done what it has and this request too."),
  kv: weight.describe("Weight of the seconds that stand for its use of KV cells."),
  slo: weight.describe("Weight of the seconds by which it would lately have missed the model's `slo`."),
  affinity: z
    .boolean()
    .default(true)
    .describe("Whether requests go to machines that know their prompt or session before the score is asked."),
  hedging: z
    .boolean()
    .default(false)
    .describe(
      "Whether a stream that is slower to begin than 95 of 100 of its model is also sent to a second machine; the first to begin answers, the other is cancelled and not billed. At most 2 of 100 requests, and only while the pool is under a third loaded.",
    ),
  retries: z.int().min(0).max(10).optional().describe("In place of `router.retries`."),
});

export const profilesSchema = z.record(z.string().min(1), profileSchema).default({});

export type RoutingProfile = z.output<typeof profileSchema>;

/** By name, the built-in one among them. */
export function profilesWithBuiltIn(
  profiles: Readonly<Record<string, RoutingProfile>>,
): Readonly<Record<string, RoutingProfile>> {
  return { [BUILT_IN_PROFILE]: profileSchema.parse({}), ...profiles };
}
