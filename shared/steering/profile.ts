import { z } from "zod";
import { changesNothing, type FeatureEdit, type Steering, type SteeringOfSae } from "./steering-set.ts";

/** Names of intensities: `min` and `max` are miLLM's floor and ceiling. */
const NAMED_INTENSITIES = { off: 0, min: 0.5, max: 1.5 } as const;
export const MAX_INTENSITY = 2;

/** The request members `profile` and `steering_intensity`. */
export const profileNameSchema = z.string().min(1).max(256);
export const intensitySchema = z.union([z.number().min(0).max(MAX_INTENSITY), z.enum(["off", "min", "max"])], {
  error: `a number from 0 to ${MAX_INTENSITY}, 'off', 'min' or 'max' is expected`,
});
export type Intensity = z.infer<typeof intensitySchema>;

export interface SteeringMembers {
  readonly steering?: unknown;
  readonly profile?: string | null | undefined;
  readonly steering_intensity?: Intensity | null | undefined;
}

/** Which members stand against each other, with the member to blame; null when they fit. */
export function profileFault(members: SteeringMembers): { readonly param: string; readonly message: string } | null {
  const given = (name: keyof SteeringMembers) => members[name] !== null && members[name] !== undefined;
  if (given("steering") && (given("profile") || given("steering_intensity"))) {
    const other = given("profile") ? "profile" : "steering_intensity";
    return { param: "steering", message: `'steering' and '${other}' exclude each other; send one of them.` };
  }
  if (given("steering_intensity") && !given("profile")) {
    return { param: "steering_intensity", message: "'steering_intensity' is the strength of a 'profile'; name one." };
  }
  return null;
}

export function intensityValue(intensity: Intensity | null | undefined): number {
  if (intensity === null || intensity === undefined) return 1;
  return typeof intensity === "number" ? intensity : NAMED_INTENSITIES[intensity];
}

/**
 * A stored steering at an intensity: strengths of `add` and `set` times it; of `scale` and `ablate`, which are factors,
 * the distance from 1. At 0 nothing is left. Bounds come later, as for any steering.
 */
export function atIntensity(steering: Steering, intensity: number): Steering {
  if (intensity === 1) return steering;
  if (intensity === 0) return { features: [] };
  if (Array.isArray(steering)) return steering.map((set) => setAt(set, intensity));
  return setAt(steering, intensity);
}

function setAt(set: SteeringOfSae, intensity: number): SteeringOfSae {
  const features = set.features
    .map((feature) => featureAt(feature, intensity))
    .filter(({ mode, strength }) => !changesNothing(mode ?? "add", strength ?? 0));
  return features.length === 0 ? { features } : { ...set, features };
}

function featureAt(feature: FeatureEdit, intensity: number): FeatureEdit {
  const mode = feature.mode ?? "add";
  if (mode === "add" || mode === "set") return { ...feature, strength: (feature.strength ?? 0) * intensity };
  const factor = mode === "ablate" ? 0 : (feature.strength ?? 1);
  // Beyond full ablation there is nothing left to take away.
  return { ...feature, mode: "scale", strength: Math.max(0, 1 + (factor - 1) * intensity) };
}
