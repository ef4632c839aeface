import { ConfigError } from "../../../shared/config/read-config.ts";
import type { Logger } from "../../../shared/logging/logger.ts";
import type { FidelityCheck } from "../../inspect/fidelity-check.ts";
import type { ModelInfo, NativeAddon } from "../../native/binding.ts";
import type { EngineOptions } from "../../ports/engine-options.ts";
import { readFeatureNotes, recordedMaxima } from "../../sae/feature-metadata.ts";
import { placeOnModel } from "../../sae/place-on-model.ts";
import { readSaeFolder } from "../../sae/read-sae-folder.ts";
import { SaeFileError } from "../../sae/sae-file-error.ts";
import type { LoadedSae } from "../engine-model.ts";

type SaeOption = EngineOptions["saes"][number];

/** What loading an SAE needs. */
export interface LoadDeps {
  readonly model: ModelInfo;
  readonly addon: Pick<NativeAddon, "loadSae">;
  readonly check: Pick<FidelityCheck, "verdict">;
  readonly logger: Logger;
}

/** An SAE that does not explain the model well enough, with the reason. */
export interface RefusedSae {
  readonly id: string;
  readonly reason: string;
}

export interface LoadedSaes {
  readonly loaded: LoadedSae[];
  readonly refused: RefusedSae[];
}

/**
 * Reads every SAE of the options into native memory. A required one that cannot belong to the model ends the start, by
 * name; any other, and one that explains the model badly, is left out.
 */
export async function loadSaes(saes: EngineOptions["saes"], deps: LoadDeps): Promise<LoadedSaes> {
  const loaded: LoadedSae[] = [];
  const refused: RefusedSae[] = [];
  for (const options of saes) {
    const { id } = options;
    if ([...loaded, ...refused].some((sae) => sae.id === id)) throw new ConfigError(`two SAEs have the id '${id}'`);
    const one = await loadOrRefuse(options, deps);
    if ("reason" in one) refused.push(one);
    else loaded.push(one);
  }
  return { loaded, refused };
}

async function loadOrRefuse(options: SaeOption, deps: LoadDeps): Promise<LoadedSae | RefusedSae> {
  try {
    return await loadSae(options, deps);
  } catch (thrown) {
    if (options.required || !(thrown instanceof SaeFileError)) throw thrown;
    deps.logger.warn("SAE left out", { sae: options.id, reason: thrown.message });
    return { id: options.id, reason: thrown.message };
  }
}

/** Reads one SAE into native memory. Throws `SaeFileError` with what does not fit. */
export async function loadSae(options: SaeOption, deps: LoadDeps): Promise<LoadedSae | RefusedSae> {
  const { model, addon, check, logger } = deps;
  const { id, path } = options;
  const files = await readSaeFolder(path);
  const { config, tensors, decoderRows, digest } = files;
  const { layer, hookPoint } = placeOnModel(config, model, options.layer, path);
  if (config.layer !== null && layer !== config.layer) {
    logger.warn("SAE attached to another layer than its own", { sae: id, layer });
  }
  const notes = await readFeatureNotes(path);
  const native = addon.loadSae(tensors);
  const { fidelity, refusal } = await check.verdict({ options, files, native, layer });
  if (refusal !== null) {
    native.dispose();
    return { id, reason: refusal };
  }
  const { featureCount, embeddingWidth } = config;
  logger.info("SAE loaded", { sae: id, layer, features: featureCount });
  return {
    id,
    digest,
    layer,
    hookPoint,
    featureCount,
    embeddingWidth,
    decoderRows,
    recordedMaxima: recordedMaxima(notes),
    notes,
    native,
    fidelity,
    about: { format: config.format, architecture: config.architecture, folds: files.folds, folder: path },
  };
}
