import { z } from "zod";

/** Additive strengths are clamped to this, in raw decoder rows, and the receipt says so. */
export const MAX_STRENGTH = 200;
/** `set` goes up to this multiple of the feature's recorded maximum, `scale` up to this factor. */
export const MAX_SET_SHARE = 4;
export const MAX_SCALE = 10;
/** Bound of `set` for a feature whose maximum is not recorded, in raw activation. */
export const MAX_SET_UNRECORDED = 1_000;
export const MAX_EDITS_PER_REQUEST = 1_000;
export const MAX_SAES_PER_REQUEST = 16;
export const MAX_POSITION_RANGES = 64;

/**
 * With h the residual row, v the decoder row and f the feature's activation on h: `add` h + s·v, `set` h + (s - f)·v,
 * `ablate` the same with s = 0, `scale` h + (s - 1)·f·v.
 */
export const EDIT_MODES = ["add", "set", "ablate", "scale"] as const;
export type EditMode = (typeof EDIT_MODES)[number];

/** `raw`: the decoder row and the activation as stored. `unit`: of a row of length 1. `max`: shares of the recorded maximum. */
export const STRENGTH_UNITS = ["raw", "unit", "max"] as const;
export type StrengthUnit = (typeof STRENGTH_UNITS)[number];

export const COMPARISONS = [">", ">=", "<", "<="] as const;
export type Comparison = (typeof COMPARISONS)[number];

/** The edit happens only on rows where feature `index` of the same SAE, encoded from the same row, compares so. */
const conditionSchema = z.strictObject({ index: z.int().min(0), op: z.enum(COMPARISONS), value: z.number() });
export type EditCondition = z.infer<typeof conditionSchema>;

/** Token positions [start, end) of prompt and answer together. */
const rangeSchema = z
  .strictObject({ start: z.int().min(0), end: z.int().min(1) })
  .refine(({ start, end }) => start < end, { error: "start must be less than end", path: ["start"] });
const positionsSchema = z.union([
  z.enum(["all", "prompt", "completion"]),
  rangeSchema,
  z.array(rangeSchema).min(1).max(MAX_POSITION_RANGES),
]);
export type SteeringPositions = z.infer<typeof positionsSchema>;

const featureSchema = z
  .strictObject({
    index: z.int().min(0),
    /** Required but for `ablate`, which has none. */
    strength: z.number().nullish(),
    mode: z.enum(EDIT_MODES).nullish(),
    unit: z.enum(STRENGTH_UNITS).nullish(),
    when: conditionSchema.nullish(),
  })
  .superRefine(({ strength, mode, unit }, context) => {
    const refuse = (member: string, message: string) => context.addIssue({ code: "custom", path: [member], message });
    if (mode === "ablate") {
      if ((strength ?? 0) !== 0) refuse("strength", "'ablate' takes no strength");
    } else if (strength === null || strength === undefined) {
      context.addIssue({ code: "invalid_type", expected: "number", path: ["strength"], input: undefined });
    }
    if ((mode === "ablate" || mode === "scale") && (unit ?? "raw") !== "raw") {
      refuse("unit", `'${mode}' has no unit`);
    }
  });
export type FeatureEdit = z.infer<typeof featureSchema>;

const steeringOfSaeSchema = z
  .strictObject({
    sae_id: z.string().min(1).nullish(),
    features: z.array(featureSchema).max(MAX_EDITS_PER_REQUEST),
    positions: positionsSchema.nullish(),
    /** Leaves rows alone that carry control tokens, such as the beginning of the text and the marks of a chat. */
    exclude_special_tokens: z.boolean().nullish(),
    /** For all features of the set; a feature cannot have its own beside it. */
    when: conditionSchema.nullish(),
  })
  .superRefine((set, context) => {
    const seen = new Set<number>();
    set.features.forEach(({ index, when }, place) => {
      if (seen.has(index)) {
        context.addIssue({
          code: "custom",
          path: ["features", place, "index"],
          message: `feature ${index} is named twice`,
        });
      }
      seen.add(index);
      if (when && set.when) {
        context.addIssue({
          code: "custom",
          path: ["features", place, "when"],
          message: "the set has a condition for all its features",
        });
      }
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
  .union([
    steeringOfSaeSchema,
    z.array(steeringOfSaeSchema).min(1).max(MAX_SAES_PER_REQUEST, `at most ${MAX_SAES_PER_REQUEST} sets`),
  ])
  .superRefine((value, context) => {
    if (!Array.isArray(value)) return;
    const seen = new Set<string | null>();
    let edits = 0;
    value.forEach((set, place) => {
      const sae = set.sae_id ?? null;
      // An empty set names none.
      if (set.features.length === 0) return;
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

/** A strength in raw units brought back to what its mode allows. `recordedMaximum` is null where none is known. */
export function clampEdit(mode: EditMode, strength: number, recordedMaximum: number | null): ClampedStrength {
  if (mode === "ablate") return { strength: 0, clamped: false };
  if (mode === "add") return within(strength, -MAX_STRENGTH, MAX_STRENGTH);
  if (mode === "scale") return within(strength, 0, MAX_SCALE);
  return within(strength, 0, recordedMaximum === null ? MAX_SET_UNRECORDED : MAX_SET_SHARE * recordedMaximum);
}

function within(strength: number, least: number, most: number): ClampedStrength {
  const bounded = Math.min(most, Math.max(least, strength));
  return { strength: bounded, clamped: bounded !== strength };
}

/** Whether an edit of this strength, in raw units, changes no row whatever stands there. */
export function changesNothing(mode: EditMode, strength: number): boolean {
  return (mode === "add" && strength === 0) || (mode === "scale" && strength === 1);
}
