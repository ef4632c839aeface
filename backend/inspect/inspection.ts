import type { NativeAddon, NativeModel } from "../native/binding.ts";
import { type ActivePosition, featureSurvival, type Survival } from "../sae/feature-survival.ts";
import { placeOnModel } from "../sae/place-on-model.ts";
import { readSaeFolder } from "../sae/read-sae-folder.ts";
import { SaeFileError } from "../sae/sae-file-error.ts";
import type { SaeArchitecture, SaeFiles, SaeFormat } from "../sae/sae-files.ts";
import { type EncodedRow, measureFidelity } from "./measure.ts";
import { ResidualReader } from "./residual-reader.ts";
import { textWindows } from "./text-windows.ts";

/** What `sae inspect --json` prints. The measured members are null without a text. */
export interface Inspection {
  readonly format: SaeFormat;
  readonly architecture: SaeArchitecture;
  readonly d_in: number;
  readonly d_sae: number;
  readonly hook_point: string;
  readonly layer: number;
  readonly explained_variance: number | null;
  readonly l0: number | null;
  /** Features that were active at no token of the text. */
  readonly dead: number | null;
  /** Whether it explains this model's rows well enough to be served. */
  readonly fits: boolean | null;
  readonly activations?: { readonly positions: readonly ActivePosition[] };
  /** Against a reference, where one is given. */
  readonly survival?: Survival;
}
export interface InspectionWish {
  readonly modelPath: string;
  readonly saePath: string;
  /** Instead of the layer that the SAE names. */
  readonly layer: number | null;
  /** What to measure on; null measures nothing. */
  readonly text: string | null;
  /** The text is one sequence: a prompt, whose activations may be wanted. */
  readonly whole: boolean;
  readonly withActivations: boolean;
  /** Activations of the same text on another file of the model; null compares with nothing. */
  readonly reference: readonly ActivePosition[] | null;
  readonly minExplainedVariance: number;
  /** CPU threads for a model of so many parameters. */
  readonly threadsFor: (parameterCount: number) => number;
}

/** Reads an SAE, sees whether it belongs on this model, and measures it there. Throws `SaeFileError` for what cannot be. */
export async function inspectSae(wish: InspectionWish, addon: NativeAddon): Promise<Inspection> {
  const files = await readSaeFolder(wish.saePath);
  const model = await addon.loadModel({ path: wish.modelPath, gpuLayers: 0, useMmap: true, tensorSplit: [] });
  try {
    const { layer, hookPoint } = placeOnModel(files.config, model.info, wish.layer, wish.saePath);
    const { format, architecture, embeddingWidth, featureCount } = files.config;
    const measured = await measure(wish, { addon, model, files, layer });
    const variance = measured?.explained_variance ?? null;
    const positions = measured?.positions ?? [];
    const survival = wish.reference === null ? null : survivalOf(wish.reference, positions);
    return {
      format,
      architecture,
      d_in: embeddingWidth,
      d_sae: featureCount,
      hook_point: hookPoint,
      layer,
      explained_variance: variance,
      l0: measured?.l0 ?? null,
      dead: measured?.dead ?? null,
      fits: variance === null ? null : variance >= wish.minExplainedVariance,
      ...(wish.withActivations ? { activations: { positions } } : {}),
      ...(survival === null ? {} : { survival }),
    };
  } finally {
    await model.dispose();
  }
}

interface Opened {
  readonly addon: NativeAddon;
  readonly model: NativeModel;
  readonly files: SaeFiles;
  readonly layer: number;
}

async function measure(wish: InspectionWish, { addon, model, files, layer }: Opened) {
  const { text, whole, threadsFor } = wish;
  const keepsRows = wish.withActivations || wish.reference !== null;
  const windows = text === null ? [] : whole ? [wholeText(model, text)] : windowsOf(model, files, text);
  const reader = await ResidualReader.open(model, {
    contextTokens: Math.max(1, ...windows.map(({ length }) => length)),
    threads: threadsFor(model.info.parameterCount),
    flashAttention: true,
    kvType: "f16",
  });
  try {
    if (reader.refusal !== null) {
      throw new SaeFileError(wish.modelPath, `SAEs cannot be used with this model: ${reader.refusal}`);
    }
    if (text === null) return null;
    const native = addon.loadSae(files.tensors);
    const positions: ActivePosition[] = [];
    const onRow = (row: EncodedRow) => void (keepsRows && positions.push(activePosition(row)));
    const fidelity = await measureFidelity({ reader, model, files, native, layer }, windows, onRow);
    native.dispose();
    return fidelity === null && positions.length === 0
      ? null
      : { explained_variance: null, l0: null, dead: null, ...fidelity, positions };
  } finally {
    await reader.dispose();
  }
}

function survivalOf(reference: readonly ActivePosition[], measured: readonly ActivePosition[]): Survival {
  const survival = featureSurvival(reference, measured);
  if (survival !== null) return survival;
  throw new SaeFileError("the reference", "was measured on another text, or with another tokenizer");
}

function windowsOf(model: NativeModel, files: SaeFiles, text: string): Int32Array[] {
  return textWindows(model, text, files.config.contextTokens);
}

function wholeText(model: NativeModel, text: string): Int32Array {
  const tokens = model.tokenize(text, true, true);
  const window = model.info.trainingContextLength;
  if (tokens.length < window) return tokens;
  throw new SaeFileError("the text", `has ${tokens.length} tokens, but the model's window is ${window}`);
}

function activePosition({ position, token, activations }: EncodedRow): ActivePosition {
  const features: { index: number; value: number }[] = [];
  activations.forEach((value, index) => {
    if (value !== 0) features.push({ index, value });
  });
  return { position, token_id: token, features };
}
