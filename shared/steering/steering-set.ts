import { z } from "zod";

/** Additive strengths are clamped to this, in raw decoder rows, and the receipt says so. */
export const MAX_STRENGTH = 200;
export const MAX_EDITS_PER_REQUEST = 1_000;
export const MAX_SAES_PER_REQUEST = 16;

/**
 * One edit. `add` is h + strength * W_dec[index]; the unit `raw` is the decoder row as stored. Other modes, units and
 * positions are refused by name until the engine can do them.
 */
const featureSchema = z.strictObject({
  index: z.int().min(0),
  strength: z.number(),
  mode: z.literal("add", { error: "only 'add' is supported" }).nullish(),
  unit: z.literal("raw", { error: "only 'raw' is supported" }).nullish(),
});

const steeringOfSaeSchema = z
  .strictObject({
    sae_id: z.string().min(1).nullish(),
    features: z.array(featureSchema).max(MAX_EDITS_PER_REQUEST),
    positions: z.literal("all", { error: "only 'all' is supported" }).nullish(),
  })
  .superRefine((set, context) => {
    const seen = new Set<number>();
    set.features.forEach(({ index }, place) => {
      if (seen.has(index)) {
        context.addIssue({
          code: "custom",
          path: ["features", place, "index"],
          message: `feature ${index} is named twice`,
        });
      }
      seen.add(index);
    });
    if (set.features.length === 0 && set.sae_id !== null && set.sae_id !== undefined) {
      context.addIssue({
        code: "custom",
        path: ["sae_id"],
        message: "an empty set of features means unsteered and names no SAE",
      });
    }
  });

/** The request member `steering`: one set, or one per SAE. `features: []` asks for an unsteered answer. */
export const steeringSchema = z
  .union([steeringOfSaeSchema, z.array(steeringOfSaeSchema).min(1).max(MAX_SAES_PER_REQUEST)])
  .superRefine((value, context) => {
    if (!Array.isArray(value)) return;
    const seen = new Set<string | null>();
    let edits = 0;
    value.forEach((set, place) => {
      const sae = set.sae_id ?? null;
      if (seen.has(sae))
        context.addIssue({ code: "custom", path: [place, "sae_id"], message: "an SAE is named twice" });
      seen.add(sae);
      edits += set.features.length;
    });
    if (edits > MAX_EDITS_PER_REQUEST) {
      context.addIssue({ code: "custom", path: [], message: `at most ${MAX_EDITS_PER_REQUEST} features in all` });
    }
  });
export type Steering = z.infer<typeof steeringSchema>;
export type SteeringOfSae = z.infer<typeof steeringOfSaeSchema>;

/** The sets that change anything, as a list whatever form the caller chose. */
export function effectiveSets(steering: Steering | null | undefined): readonly SteeringOfSae[] {
  if (steering === null || steering === undefined) return [];
  const sets = Array.isArray(steering) ? steering : [steering];
  return sets.filter((set) => set.features.length > 0);
}

export interface ClampedStrength {
  readonly strength: number;
  readonly clamped: boolean;
}
export function clampStrength(strength: number): ClampedStrength {
  const bounded = Math.min(MAX_STRENGTH, Math.max(-MAX_STRENGTH, strength));
  return { strength: bounded, clamped: bounded !== strength };
}
