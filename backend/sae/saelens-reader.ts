import { z } from "zod";
import type { SaeTensors } from "../native/binding.ts";
import { foldDecoderNorms, foldFeatureScales, foldInputScale } from "./folding.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { SaeArchitecture, SaeParts } from "./sae-files.ts";
import type { SaeFolder } from "./sae-folder.ts";
import { readSaeLensConfig, type SaeLensConfig } from "./saelens-config.ts";
import type { TensorTable } from "./tensor-table.ts";

const CONFIG_FILE = "cfg.json";
/** Beside a checkpoint whose weights still expect the scaled input. */
const SCALER_FILE = "activation_scaler.json";

const scalerSchema = z.looseObject({ scaling_factor: z.number().positive().nullish() });

/** Tensors that an architecture has; any other would change the maths and is refused. */
const TENSORS: Readonly<Record<SaeArchitecture, readonly string[]>> = {
  standard: ["W_enc", "W_dec", "b_enc", "b_dec"],
  gated: ["W_enc", "W_dec", "b_gate", "b_mag", "r_mag", "b_dec"],
  jumprelu: ["W_enc", "W_dec", "b_enc", "b_dec", "threshold"],
  topk: ["W_enc", "W_dec", "b_enc", "b_dec"],
};
/** What BatchTopK training starts its global threshold with. */
const UNSET_THRESHOLD = -1;

/** SAELens, from its first versions to 6: cfg.json beside safetensors. Throws `SaeFileError`. */
export async function readSaeLens(folder: SaeFolder, table: TensorTable): Promise<SaeParts> {
  const { file, document } = await folder.json(CONFIG_FILE, (found) => "d_in" in found && "d_sae" in found);
  const config = readSaeLensConfig(document, file);
  const { architecture, embeddingWidth: d, featureCount: f } = config;
  table.refuseOthers([...TENSORS[architecture], "scaling_factor"], `a ${architecture} SAE`);
  const decoderRows = table.featureRows("W_dec", d, f);
  const tensors: SaeTensors = {
    embeddingWidth: d,
    featureCount: f,
    encoderColumns: table.featureRows("W_enc", d, f),
    encoderBias: table.vector(architecture === "gated" ? "b_mag" : "b_enc", f),
    decoderBias: table.vector("b_dec", d),
    applyDecoderBiasToInput: config.applyDecoderBiasToInput,
    normalization: config.normalization === "expected_average_only_in" ? "none" : config.normalization,
    activation: architecture === "standard" ? "relu" : architecture,
    threshold: architecture === "jumprelu" ? thresholds(table, f) : new Float32Array(0),
    ...(architecture === "gated"
      ? { gateBias: table.vector("b_gate", f), magnitudeScale: table.vector("r_mag", f).map(Math.exp) }
      : {}),
    ...(config.activeCount === null ? {} : { activeCount: config.activeCount }),
  };
  const folds = [
    ...foldScalingFactor(table, config, decoderRows),
    ...(config.rescaledByDecoderNorm ? [foldNorms({ ...tensors, decoderRows })] : []),
    ...(await foldAverage(folder, config, { ...tensors, decoderRows })),
  ];
  const { format, hookPoint, layer, modelName, contextTokens } = config;
  return {
    config: {
      format,
      architecture,
      embeddingWidth: d,
      featureCount: f,
      hookPoint,
      layer,
      modelName,
      contextTokens,
    },
    tensors,
    decoderRows,
    folds,
  };
}

function thresholds(table: TensorTable, featureCount: number): Float32Array {
  const values = table.vector("threshold", featureCount);
  if (!values.every((value) => value === UNSET_THRESHOLD)) return values;
  throw new SaeFileError(table.file, `has threshold ${UNSET_THRESHOLD} everywhere: it was never set`);
}

/** Before version 6 a factor per feature was saved; all ones means that it was never trained. */
function foldScalingFactor(table: TensorTable, config: SaeLensConfig, decoderRows: Float32Array): string[] {
  if (!table.has("scaling_factor")) return [];
  const scales = table.vector("scaling_factor", config.featureCount);
  if (scales.every((value) => value === 1)) return [];
  if (config.scalesFeatures === false) {
    throw new SaeFileError(
      table.file,
      "has a trained scaling_factor, but its configuration says finetuning_scaling_factor false",
    );
  }
  foldFeatureScales(decoderRows, scales);
  return ["scaling_factor"];
}

function foldNorms(parts: Parameters<typeof foldDecoderNorms>[0]): string {
  foldDecoderNorms(parts);
  return "decoder_norm";
}

/**
 * The average norm is folded into what SAELens saves for use; only a checkpoint keeps it apart, and says so in a file
 * of its own.
 */
async function foldAverage(
  folder: SaeFolder,
  config: SaeLensConfig,
  parts: Parameters<typeof foldInputScale>[0],
): Promise<string[]> {
  const scaler = await folder.optionalJson(SCALER_FILE);
  if (scaler === null) return [];
  const read = scalerSchema.safeParse(scaler.document);
  if (!read.success) throw new SaeFileError(scaler.file, "holds no positive scaling_factor");
  const scale = read.data.scaling_factor ?? null;
  if (scale === null) return [];
  if (config.normalization !== "expected_average_only_in") {
    throw new SaeFileError(
      scaler.file,
      `holds a factor, but the SAE has normalize_activations '${config.normalization}'`,
    );
  }
  foldInputScale(parts, scale);
  return [`input_scale ${scale}`];
}
