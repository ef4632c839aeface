import { readFile } from "node:fs/promises";
import { join } from "node:path";
import type { Logger } from "../../shared/logging/logger.ts";
import type { Fidelity } from "../../shared/protocol/report.ts";
import type { ContextOptions, NativeModel, NativeSae } from "../native/binding.ts";
import { CALIBRATION_FILE, type EngineOptions } from "../ports/engine-options.ts";
import { SaeFileError } from "../sae/sae-file-error.ts";
import type { SaeFiles } from "../sae/sae-files.ts";
import type { FidelityStore } from "./fidelity-store.ts";
import { measureFidelity } from "./measure.ts";
import { ResidualReader } from "./residual-reader.ts";
import { textWindows } from "./text-windows.ts";

export interface CheckedSae {
  readonly options: EngineOptions["saes"][number];
  readonly files: SaeFiles;
  readonly native: NativeSae;
  readonly layer: number;
}

export interface FidelityVerdict {
  /** Null where there is no text to measure on, or no variance in it. */
  readonly fidelity: Fidelity | null;
  /** Why it must not be served, or null. */
  readonly refusal: string | null;
}

export interface FidelityCheckDeps {
  readonly model: NativeModel;
  readonly modelPath: string;
  /** As the model will be served. */
  readonly context: Pick<ContextOptions, "threads" | "flashAttention" | "kvType">;
  readonly minExplainedVariance: number;
  readonly store: FidelityStore;
  readonly logger: Logger;
}

/** Decides whether an SAE explains its model's file well enough to be served. Measured once for the same files. */
export class FidelityCheck {
  readonly #deps: FidelityCheckDeps;

  constructor(deps: FidelityCheckDeps) {
    this.#deps = deps;
  }

  async verdict(sae: CheckedSae): Promise<FidelityVerdict> {
    const { minExplainedVariance: least, logger } = this.#deps;
    const { id, serve_anyway: serveAnyway } = sae.options;
    const fidelity = await this.#fidelityOf(sae);
    const variance = fidelity?.explained_variance ?? null;
    if (fidelity === null || variance === null) {
      logger.info("SAE fidelity unmeasured", { sae: id });
      return { fidelity, refusal: null };
    }
    logger.info("SAE fidelity", { sae: id, ...fidelity });
    if (variance >= least) return { fidelity, refusal: null };
    const found = `it explains ${variance.toFixed(3)} of the variance of this model's residual stream, less than ${least}`;
    if (serveAnyway) {
      logger.warn("SAE served although it does not fit", { sae: id, found });
      return { fidelity, refusal: null };
    }
    logger.error("SAE not served", { sae: id, found });
    return { fidelity, refusal: found };
  }

  async #fidelityOf(sae: CheckedSae): Promise<Fidelity | null> {
    const { model, modelPath, store } = this.#deps;
    const text = await calibrationText(sae.options);
    if (text === null) return null;
    const key = {
      modelDigest: await store.modelDigest(modelPath),
      saeDigest: sae.files.digest,
      layer: sae.layer,
      text,
      trainedTokens: sae.files.config.contextTokens,
    };
    const known = await store.find(key);
    if (known !== null) return known;
    const windows = textWindows(model, text, key.trainedTokens);
    const measured = windows.length === 0 ? null : await this.#measure(sae, windows);
    if (measured !== null) await store.keep(key, measured);
    return measured;
  }

  async #measure({ files, native, layer }: CheckedSae, windows: readonly Int32Array[]): Promise<Fidelity | null> {
    const { model, context } = this.#deps;
    const contextTokens = Math.max(...windows.map(({ length }) => length));
    const reader = await ResidualReader.open(model, { ...context, contextTokens });
    try {
      // The engine itself refuses SAEs on such a model.
      if (reader.refusal !== null) return null;
      return await measureFidelity({ reader, model, files, native, layer }, windows);
    } finally {
      await reader.dispose();
    }
  }
}

async function calibrationText({
  path,
  calibration_text: named,
}: EngineOptions["saes"][number]): Promise<string | null> {
  const file = named ?? join(path, CALIBRATION_FILE);
  try {
    return await readFile(file, "utf8");
  } catch (thrown) {
    const missing = thrown instanceof Error && "code" in thrown && thrown.code === "ENOENT";
    if (missing && named === null) return null;
    throw new SaeFileError(file, "cannot be read", thrown);
  }
}
