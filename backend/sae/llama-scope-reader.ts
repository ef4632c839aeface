import { z } from "zod";
import { layerOfHookPoint } from "../../shared/steering/hook-points.ts";
import { foldInputScale } from "./folding.ts";
import { SaeFileError } from "./sae-file-error.ts";
import type { SaeParts } from "./sae-files.ts";
import type { SaeFolder } from "./sae-folder.ts";
import type { TensorTable } from "./tensor-table.ts";

const CONFIG_FILE = "hyperparams.json";
const TENSORS = ["encoder.weight", "encoder.bias", "decoder.weight", "decoder.bias"];

const fileSchema = z.looseObject({
  d_model: z.int().min(1),
  d_sae: z.int().min(1),
  jump_relu_threshold: z.number(),
  act_fn: z.string().nullish(),
  hook_point_in: z.string(),
  hook_point_out: z.string().nullish(),
  norm_activation: z.string().nullish(),
  dataset_average_activation_norm: z.looseObject({ in: z.number().positive() }).nullish(),
  apply_decoder_bias_to_pre_encoder: z.boolean().nullish(),
  use_glu_encoder: z.boolean().nullish(),
  context_size: z.int().min(1).nullish(),
});

/**
 * Llama Scope: hyperparams.json beside safetensors in PyTorch's orientation. It was trained on rows of average length
 * √d; s = √d / average norm is folded in. Its one threshold is stated for the folded-back activations, so it takes s as
 * well (over the released layers threshold · s is nearly constant, threshold alone is not). Throws `SaeFileError`.
 */
export async function readLlamaScope(folder: SaeFolder, table: TensorTable): Promise<SaeParts> {
  const { file, document } = await folder.json(CONFIG_FILE, (found) => "d_model" in found && "d_sae" in found);
  const read = fileSchema.safeParse(document);
  if (!read.success) {
    const issue = read.error.issues[0];
    throw new SaeFileError(
      file,
      `is not a Llama Scope configuration (${issue?.path.join(".") ?? ""}: ${issue?.message ?? ""})`,
    );
  }
  const cfg = read.data;
  refuseOtherMaths(cfg, file);
  const layer = layerOfHookPoint(cfg.hook_point_in);
  if (layer === null) {
    throw new SaeFileError(
      file,
      `has hook point '${cfg.hook_point_in}'; only the residual stream after a block can be hooked`,
    );
  }
  table.refuseOthers(TENSORS, "a Llama Scope SAE");
  const { d_model: d, d_sae: f } = cfg;
  const average = cfg.dataset_average_activation_norm?.in ?? null;
  const scaled = average !== null && (cfg.norm_activation ?? "dataset-wise") === "dataset-wise";
  const scale = scaled ? Math.sqrt(d) / average : 1;
  const decoderRows = table.featureRows("decoder.weight", d, f);
  const tensors = {
    embeddingWidth: d,
    featureCount: f,
    encoderColumns: table.featureRows("encoder.weight", d, f),
    encoderBias: table.vector("encoder.bias", f),
    decoderBias: table.has("decoder.bias") ? table.vector("decoder.bias", d) : new Float32Array(d),
    applyDecoderBiasToInput: cfg.apply_decoder_bias_to_pre_encoder ?? false,
    activation: "jumprelu" as const,
    threshold: new Float32Array(f).fill(cfg.jump_relu_threshold * scale),
  };
  if (scaled) foldInputScale({ ...tensors, decoderRows }, scale);
  return {
    config: {
      format: "llama_scope",
      architecture: "jumprelu",
      embeddingWidth: d,
      featureCount: f,
      hookPoint: cfg.hook_point_in,
      layer,
      modelName: null,
      contextTokens: cfg.context_size ?? null,
    },
    tensors,
    decoderRows,
    folds: scaled ? [`input_scale ${scale}`] : [],
  };
}

function refuseOtherMaths(cfg: z.infer<typeof fileSchema>, file: string): void {
  const activation = cfg.act_fn ?? "jumprelu";
  if (activation !== "jumprelu") {
    throw new SaeFileError(file, `has act_fn '${activation}'; only 'jumprelu' can be used`);
  }
  if (cfg.use_glu_encoder === true) throw new SaeFileError(file, "has a gated linear encoder, which cannot be used");
  const norm = cfg.norm_activation ?? "dataset-wise";
  if (norm !== "dataset-wise" && norm !== "inference") {
    throw new SaeFileError(file, `has norm_activation '${norm}'; 'dataset-wise' and 'inference' can be used`);
  }
  if (cfg.norm_activation === "dataset-wise" && (cfg.dataset_average_activation_norm ?? null) === null) {
    throw new SaeFileError(file, "has norm_activation 'dataset-wise' but no dataset_average_activation_norm");
  }
  const out = cfg.hook_point_out ?? cfg.hook_point_in;
  if (out !== cfg.hook_point_in) {
    throw new SaeFileError(file, `reads at ${cfg.hook_point_in} and writes at ${out}: a transcoder cannot be used`);
  }
}
