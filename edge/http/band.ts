import { ApiError } from "../../shared/errors/api-error.ts";
import type { BandSetting } from "../deps.ts";

/**
 * The band of a request: the caller's wish, or the default, brought down to the highest band its project may use.
 * A band that does not exist is refused with 400, since a typing error would silently cost the caller its place.
 */
export function bandOf(
  wish: string | undefined,
  highestBand: string | null,
  settings: { readonly bands: readonly BandSetting[]; readonly defaultBand: string; readonly bandHeader: string },
): string {
  const name = wish?.trim() || settings.defaultBand;
  const wished = settings.bands.find((band) => band.name === name);
  if (wished === undefined) {
    const names = settings.bands.map((band) => band.name).join(", ");
    throw new ApiError("invalid_value", {
      message: `There is no such band. Bands: ${names}.`,
      param: settings.bandHeader,
    });
  }
  const highest = settings.bands.find((band) => band.name === highestBand);
  return highest !== undefined && highest.priority < wished.priority ? highest.name : wished.name;
}
