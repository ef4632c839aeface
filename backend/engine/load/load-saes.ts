import { ConfigError } from "../../../shared/config/read-config.ts";
import type { Logger } from "../../../shared/logging/logger.ts";
import { residualPostHookPoint } from "../../../shared/steering/hook-points.ts";
import type { ModelInfo, NativeAddon } from "../../native/binding.ts";
import type { EngineOptions } from "../../ports/engine-options.ts";
import { readRecordedMaxima } from "../../sae/feature-maxima.ts";
import { SaeFileError } from "../../sae/sae-file-error.ts";
import { readSaeFolder } from "../../sae/read-sae-folder.ts";
import type { LoadedSae } from "../engine-model.ts";

/** Reads every SAE of the options into native memory. One that does not fit the model ends the start, by name. */
export async function loadSaes(
  saes: EngineOptions["saes"],
  model: ModelInfo,
  addon: Pick<NativeAddon, "loadSae">,
  logger: Logger,
): Promise<LoadedSae[]> {
  const loaded: LoadedSae[] = [];
  for (const { id, path, layer: wantedLayer } of saes) {
    if (loaded.some((sae) => sae.id === id)) throw new ConfigError(`two SAEs have the id '${id}'`);
    const { config, tensors, decoderRows, digest } = await readSaeFolder(path);
    if (config.embeddingWidth !== model.embeddingWidth) {
      const { embeddingWidth: width } = config;
      throw new SaeFileError(path, `has width ${width}, but the model's residual stream has ${model.embeddingWidth}`);
    }
    const layer = wantedLayer ?? config.layer;
    if (layer === null) throw new SaeFileError(path, "does not say to which layer it belongs; set its `layer`");
    if (layer >= model.layerCount) {
      throw new SaeFileError(path, `belongs to layer ${layer}, but the model has layers 0 to ${model.layerCount - 1}`);
    }
    if (config.layer !== null && layer !== config.layer)
      logger.warn("SAE attached to another layer than its own", { sae: id, layer });
    const hookPoint = (layer === config.layer ? config.hookPoint : null) ?? residualPostHookPoint(layer);
    const native = addon.loadSae(tensors);
    const { featureCount, embeddingWidth } = config;
    const recordedMaxima = await readRecordedMaxima(path);
    loaded.push({ id, digest, layer, hookPoint, featureCount, embeddingWidth, decoderRows, recordedMaxima, native });
    logger.info("SAE loaded", { sae: id, layer, features: featureCount });
  }
  return loaded;
}
