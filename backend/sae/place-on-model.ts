import { residualPostHookPoint } from "../../shared/steering/hook-points.ts";
import type { ModelInfo } from "../native/binding.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { SaeConfig } from "./sae-files.ts";

export interface SaePlace {
  readonly layer: number;
  /** The SAE's own name for it, where it is its own place. */
  readonly hookPoint: string;
}

/**
 * The block that an SAE goes to on this model: what was asked for, else what it says itself. Throws `SaeFileError` where
 * that cannot be; `path` names it there.
 */
export function placeOnModel(
  { embeddingWidth: width, layer: own, hookPoint }: SaeConfig,
  model: Pick<ModelInfo, "embeddingWidth" | "layerCount">,
  asked: number | null,
  path: string,
): SaePlace {
  if (width !== model.embeddingWidth) {
    throw new SaeFileError(path, `has width ${width}, but the model's residual stream has ${model.embeddingWidth}`);
  }
  const layer = asked ?? own;
  if (layer === null) throw new SaeFileError(path, "does not say to which layer it belongs; name its layer");
  if (layer >= model.layerCount) {
    throw new SaeFileError(path, `belongs to layer ${layer}, but the model has layers 0 to ${model.layerCount - 1}`);
  }
  return { layer, hookPoint: (layer === own ? hookPoint : null) ?? residualPostHookPoint(layer) };
}
