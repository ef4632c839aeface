import { describe, expect, it } from "vitest";
import { atIntensity, intensitySchema, intensityValue, profileFault } from "../../../shared/steering/profile.ts";
import { steeringSchema } from "../../../shared/steering/steering-set.ts";

describe("an intensity", () => {
  it.each([
    [null, 1],
    [0, 0],
    [2, 2],
    ["off", 0],
    ["min", 0.5],
    ["max", 1.5],
  ])("of %j is %d", (given, value) => {
    expect(intensityValue(intensitySchema.nullable().parse(given))).toBe(value);
  });
  it.each([true, -0.1, 2.1, "1", "full", Number.NaN])("is never %j", (given) => {
    expect(intensitySchema.safeParse(given).success).toBe(false);
  });
});

describe("a profile at an intensity", () => {
  const stored = steeringSchema.parse([
    {
      sae_id: "a",
      positions: "completion",
      features: [
        { index: 1, strength: 10 },
        { index: 2, strength: 4, mode: "set", unit: "raw" },
        { index: 3, strength: 3, mode: "scale" },
        { index: 4, mode: "ablate" },
      ],
    },
  ]);

  it.each([
    [0.5, [5, 2, 2, 0.5]],
    [1.5, [15, 6, 4, 0]],
    [2, [20, 8, 5, 0]],
  ])("%d moves every mode away from nothing", (intensity, strengths) => {
    const [set] = [atIntensity(stored, intensity)].flat();
    expect(set?.features.map(({ strength }) => strength)).toEqual(strengths);
    expect(set?.features.map(({ mode }) => mode ?? "add")).toEqual(["add", "set", "scale", "scale"]);
    expect(set?.positions).toBe("completion");
    expect(steeringSchema.safeParse(atIntensity(stored, intensity)).success).toBe(true);
  });

  it("1 is what was stored, 0 is unsteered", () => {
    expect(atIntensity(stored, 1)).toBe(stored);
    expect(atIntensity(stored, 0)).toEqual({ features: [] });
  });
});

describe("steering members of a request", () => {
  it.each([
    [{ profile: "p" }, null],
    [{ profile: "p", steering_intensity: 2 }, null],
    [{ steering: { features: [] } }, null],
    [{ steering: { features: [] }, profile: "p" }, "steering"],
    [{ steering: { features: [] }, steering_intensity: 1 }, "steering"],
    [{ steering_intensity: "max" as const }, "steering_intensity"],
  ])("%j: at fault is %s", (members, param) => {
    expect(profileFault(members)?.param ?? null).toBe(param);
  });
});
