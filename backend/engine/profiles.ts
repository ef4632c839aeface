import { ApiError, toApiError } from "../../shared/errors/api-error.ts";
import type { ReportedProfile } from "../../shared/protocol/report.ts";
import { atIntensity, intensityValue, profileFault, type SteeringMembers } from "../../shared/steering/profile.ts";
import { effectiveSets, type Steering } from "../../shared/steering/steering-set.ts";
import type { EngineOptions } from "../ports/engine-options.ts";
import { resolveSae, type AttachedSae } from "../sae/attached-sae.ts";

/** The steering that a request comes down to, and the profile it came from. */
export interface AskedSteering {
  readonly steering: Steering | null;
  readonly profile: { readonly name: string; readonly intensity: number } | null;
}

/** Throws an ApiError that names the member at fault. */
export function askedSteering(
  request: SteeringMembers & { readonly steering?: Steering | null | undefined },
  profiles: EngineOptions["profiles"],
): AskedSteering {
  const fault = profileFault(request);
  if (fault !== null) throw new ApiError("invalid_steering", fault);
  const name = request.profile ?? null;
  if (name === null) return { steering: request.steering ?? null, profile: null };
  const stored = profiles.find((profile) => profile.name === name);
  if (stored === undefined) {
    const known = profiles.map((profile) => profile.name).join(", ");
    const message = `There is no profile of this name. Available: ${known === "" ? "none" : known}.`;
    throw new ApiError("invalid_steering", { message, param: "profile" });
  }
  const intensity = intensityValue(request.steering_intensity);
  return { steering: atIntensity(stored.steering, intensity), profile: { name, intensity } };
}

/** Runs what plans a profile's steering: its faults are the profile's, since the caller wrote none of its members. */
export function blamingProfile<Result>(profile: AskedSteering["profile"], plan: () => Result): Result {
  if (profile === null) return plan();
  try {
    return plan();
  } catch (thrown) {
    const error = toApiError(thrown);
    if (error.status !== 400) throw thrown;
    throw new ApiError("invalid_steering", {
      message: `The profile '${profile.name}' cannot be applied: ${error.message}`,
      param: "profile",
      cause: thrown,
    });
  }
}

/** The profiles whose SAEs are all attached, with their ids. */
export function usableProfiles(
  profiles: EngineOptions["profiles"],
  attached: readonly AttachedSae[],
): ReportedProfile[] {
  return profiles.flatMap(({ name, steering }) => {
    try {
      const saes = effectiveSets(steering).map(({ sae_id: id }) => resolveSae(attached, id, "profile").id);
      return saes.length === 0 ? [] : [{ name, saes: [...new Set(saes)] }];
    } catch {
      return [];
    }
  });
}
